"""Compare the bridge with PyTorch, bit for bit, over PyTorch's own operator samples.

Every sample of PyTorch's OpInfo database is run once under a dispatch mode that records the ATen overloads it
reaches, composite ones included. Each recorded call is then made three times on copies of the same bits: twice by
PyTorch (to know whether PyTorch repeats itself) and once by the bridge on MindSpore tensors. Overloads that OpInfo
does not reach have samples of our own in scripts/conformance/samples.py.

    python -m scripts.conformance                                   # float32, PyNative
    python -m scripts.conformance --dtypes float64,int64 --json report.json
    python -m scripts.conformance --mode graph                      # one sample per overload under ms.jit
    python -m scripts.conformance --gradients --ops 'conv*,linear'
"""

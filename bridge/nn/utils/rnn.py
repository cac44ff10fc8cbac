"""PyTorch's padded and packed sequences (torch.nn.utils.rnn), of MindSpore's tensors; packed ones in PyNative mode, and
in a graph inside `bridge.fuse`."""

from __future__ import annotations

from torch.nn.utils import rnn as _rnn

from bridge.nn.utils.function import TensorFunction as _TensorFunction

PackedSequence = _rnn.PackedSequence

pad_sequence = _TensorFunction(_rnn.pad_sequence, "pad_sequence")
unpad_sequence = _TensorFunction(_rnn.unpad_sequence, "unpad_sequence")
unpack_sequence = _TensorFunction(_rnn.unpack_sequence, "unpack_sequence")
pack_sequence = _TensorFunction(_rnn.pack_sequence, "pack_sequence")
pack_padded_sequence = _TensorFunction(_rnn.pack_padded_sequence, "pack_padded_sequence")
pad_packed_sequence = _TensorFunction(_rnn.pad_packed_sequence, "pad_packed_sequence")

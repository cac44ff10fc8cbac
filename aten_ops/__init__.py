"""Writes the shims: from the installed PyTorch's native_functions.yaml to C++ and to the tables that `bridge` reads."""

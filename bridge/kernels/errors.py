"""What bridge.kernels raises when a kernel cannot be built or does not do what was declared."""


class KernelError(RuntimeError):
    """A kernel cannot be compiled or loaded, or is not what its declaration says."""

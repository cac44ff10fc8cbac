"""A whole PyTorch module as one operator of MindSpore's. See README.md here."""

from bridge.programs.cell import ModuleCell, cell

__all__ = ["ModuleCell", "cell"]

"""A whole PyTorch module as one operator of MindSpore's. See README.md here."""

from bridge.programs.cell import ModuleCell, cell
from bridge.programs.differentiated import value_and_grad
from bridge.programs.fuse import FusedCell, fuse

__all__ = ["FusedCell", "ModuleCell", "cell", "fuse", "value_and_grad"]

"""The build back end: that of setuptools, with the releases of MindSpore and PyTorch that bridge/_versions.py has."""

from __future__ import annotations

from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

from .versions import REQUIREMENTS


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), *REQUIREMENTS]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return [*build_meta.get_requires_for_build_editable(config_settings), *REQUIREMENTS]

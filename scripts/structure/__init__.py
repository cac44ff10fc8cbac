"""The rules that scripts/check_structure.py checks: the order of bridge's packages, and MindSpore's private names."""

"""Modules as users have them, for test_programs_written_down.py."""

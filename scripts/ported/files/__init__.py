"""A module for each file: where it is, its edits, and a small network of it."""

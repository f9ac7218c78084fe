"""Setup: what an environment needs besides the wheel."""

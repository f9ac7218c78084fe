"""Setup: install what an environment needs beside the wheel."""

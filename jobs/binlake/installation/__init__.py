"""What an environment needs beside the wheel."""

"""Kernels: compiled functions that work on bytes and column buffers. Pure; they import no other room."""

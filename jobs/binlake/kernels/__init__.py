"""Kernels: compiled functions over bytes and column buffers. Pure; imports no other room."""

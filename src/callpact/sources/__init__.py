"""Sources turn declarations into Tools. Each stands alone; they meet only in `loaded.py`."""

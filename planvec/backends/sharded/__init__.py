"""Spreads batches over workers of any kind: cuts, merges, masks and retries rows."""

"""Spans and logs: kept with bounds, and put together to what a page shows of a run."""

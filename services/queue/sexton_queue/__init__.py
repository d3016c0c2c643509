"""The queue: hands due runs to workers and settles what they report."""

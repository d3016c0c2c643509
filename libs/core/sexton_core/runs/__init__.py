"""The life of one run: its states, what moves it, retries and completions."""

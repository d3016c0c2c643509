"""Where attempts are executed: in this process, or in processes that are guarded."""

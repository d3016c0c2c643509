"""The console: pages that show a mesh at work, and the receiver of the traces behind them.

The rooms, and what each is allowed to know:

otlp    receives spans, logs and metrics over gRPC, and hands them on
traces  keeps what was received, in SQLite, with bounds; gives a run's waterfall
mesh    the public API as a client sees it, and a follower that counts what goes by
web     pages, sessions, actions and live updates, over HTTP

The console is a client like any other: it holds nothing that the mesh needs, and the mesh does not
notice whether it is there.
"""

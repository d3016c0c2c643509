"""What stands in the store: the keys, and the records under them, between wire and domain.

Coordinators and queues write and read the same records and never import each other; this is what
they share. Imports the core and the wire, nothing that runs.
"""

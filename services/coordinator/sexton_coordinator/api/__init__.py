"""The public API, served by every replica: jobs, runs, members.

rpc         checks      what a call says, before anything is read
jobs        changes     read, compute with the core, commit comparing what was read, or begin anew
            applying    the same for a whole file
            showing     records as the API shows them
runs        run_finding, run_listing, run_watching
mesh        members     who is who
            peers       what only a leader or an owner can do, asked of whoever holds the lease
"""

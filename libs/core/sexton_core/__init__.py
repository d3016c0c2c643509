"""The pure domain of Sexton: words, schedules, policies and state machines. No I/O, no clock."""

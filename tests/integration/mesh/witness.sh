#!/bin/bash
# What a job of these tests does: witness.sh FILE SECONDS [LATER]. Writes that it began and, after so
# many seconds (LATER: of attempts after the first), that it ended; each line is on the disk before
# it goes on. The truth about runs is here.
set -eu
say() {
  printf '%s %s %s %s %s %s\n' "$1" "$SEXTON_RUN_ID" "$SEXTON_NOMINAL_TIME" "$SEXTON_ATTEMPT" \
    "$SEXTON_TOKEN" "$$" >>"$file"
  sync "$file"
}
file=$1
say start
if [ "$SEXTON_ATTEMPT" -gt 1 ]; then sleep "${3:-$2}"; else sleep "$2"; fi
say end

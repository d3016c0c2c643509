#!/bin/bash
# What a job of these tests does: witness.sh FILE SECONDS. Writes that it began and, after so many
# seconds, that it ended; each line is on the disk before it goes on. The truth about runs is here.
set -eu
say() {
  printf '%s %s %s %s %s %s\n' "$1" "$SEXTON_RUN_ID" "$SEXTON_NOMINAL_TIME" "$SEXTON_ATTEMPT" \
    "$SEXTON_TOKEN" "$$" >>"$file"
  sync "$file"
}
file=$1
say start
sleep "$2"
say end

# The shell job of the fault tests: writes its start and its end as `faults.tasks` does, and sleeps
# FAULTS_SECONDS in between. This clock shows hundredths of a second.
set -eu
file=$FAULTS_FOLDER/$SEXTON_JOB.jsonl
say() {
  read -r up _ </proc/uptime
  run='"namespace":"%s","job":"%s","run":"%s","number":%s,"token":%s%s'
  printf '{"kind":"exec","at_ns":%s0000000,"within_ns":10000000,"what":"%s","target":"%s","facts":{'"$run"'}}\n' \
    "${up/./}" "$1" "$FAULTS_WORKER" "$SEXTON_NAMESPACE" "$SEXTON_JOB" "$SEXTON_RUN_ID" \
    "$SEXTON_ATTEMPT" "$SEXTON_TOKEN" "${2:+,\"how\":\"$2\"}" >>"$file"
  sync "$file"
}
say started ""
sleep "$FAULTS_SECONDS"
say ended succeeded

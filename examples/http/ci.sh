#!/bin/sh
# Submit a job to a Detent server with curl, wait for its end, and end like it: 0 succeeded, 1 failed, 3 refused, 4 not reachable.
#
#   DETENT_URL=http://127.0.0.1:7733 DETENT_KEY=dtk_... sh ci.sh job.json [IDEMPOTENCY-KEY]
#
# The file is the body of POST /v1/jobs. With an idempotency key, a step of CI that is run again gets the job of its first run.
set -u

ask() { # METHOD PATH [OPTIONS OF CURL]: the answer, and its status on a line of its own
    method=$1 path=$2
    shift 2
    # By standard input: other users of the machine see the options of a process, and not its key.
    printf 'header = "Authorization: Bearer %s"\n' "$DETENT_KEY" |
        curl -sS --config - --max-time 90 -X "$method" -w '\n%{http_code}' "$@" "$DETENT_URL$path"
}

field() { # NAME: the first text of that name in the answer
    printf '%s' "$answer" | grep -o "\"$1\": *\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4
}

insist() { # End where the answer is not a success
    case $(printf '%s' "$answer" | tail -n 1) in
    2??) return ;;
    5??) code=4 ;;
    *) code=3 ;;
    esac
    echo "$(field code): $(field detail)" >&2
    exit "$code"
}

set -- "$1" "${2:-}"
answer=$(ask POST /v1/jobs -H 'Content-Type: application/json' ${2:+-H "Idempotency-Key: $2"} --data-binary "@$1") || exit 4
insist
job=$(field job_id)
while :; do
    answer=$(ask GET "/v1/jobs/$job?wait=60") || exit 4
    insist
    case $(field status) in
    queued | running) ;;
    *) break ;;
    esac
done
echo "job $job $(field status)"
[ "$(field status)" = succeeded ]

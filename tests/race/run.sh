#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh BINARY: the race planted in BINARY must be reported, and the same code with a lock must not.
# It runs with the options and suppressions of the whole suite, so it also shows that those hide nothing of ours.
passed=0 failed=0

verdict() { # what, wanted or not
    if [ "$1" = "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $3: want $2, got $1"
        echo "$out"
    fi
}

for how in racing locked; do
    out=$("$1" "$how" 2>&1)
    status=$?
    case $status:$out in
    66:*"WARNING: ThreadSanitizer: data race"*wp_map_put*) got=reported ;;
    0:done) got=silent ;;
    *) got="exit status $status" ;;
    esac
    [ $how = racing ] && want=reported || want=silent
    verdict "$got" "$want" "$how"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

#!/bin/bash
# one-case.sh JOB CASE: one case in a shell of its own, so that `set -e` holds and a time limit can end it.
. "$(dirname "$0")/lib.sh"
. "$1"
set -eE
trap 'echo "line ${BASH_LINENO[0]}/$LINENO: $BASH_COMMAND: status $?"' ERR
umask 022
if [ "$OWN_DIRECTORY" = no ]; then
	cd $MNT
else
	mkdir -p "$(case_directory "$2")"
	cd "$(case_directory "$2")"
fi
"$2"

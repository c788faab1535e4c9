# What every guest job starts with; sourced by the driver's job, and again by each case.
#
# A job file (work.sh, posix.sh, ...) holds functions case_<sentence>. The driver passes their names in $CASES; run_cases
# runs each one in a shell of its own under `set -eE`, in a directory of its own on the mount (unless the job says
# OWN_DIRECTORY=no), and writes one line
# `ok|FAILED|skipped NAME SECONDS` to $KC_OUT/results. What a case printed lies in $KC_OUT/NAME.log.
# With several guests each runs every case; a barrier before a case brings them together again after a failure.
GUEST=$(dirname "${BASH_SOURCE[0]}")
MNT=/mnt/nfs
SKIP=77     # a case that cannot say anything here ends with `skip WHY`

skip() { echo "skipped: $*"; exit $SKIP; }
die() { echo "FAILED: $*" >&2; exit 1; }
# same WHAT A B: one line of evidence instead of a bare status.
same() { [ "$2" = "$3" ] || die "$1: have '$2', want '$3'"; }
# refused ERRNO-TEXT COMMAND...: the command must fail, and for the reason given.
refused() {
	local why=$1 said
	shift
	if said=$(LC_ALL=C "$@" 2>&1); then die "'$*' was allowed; want $why"; fi
	case $said in *"$why"*) ;; *) die "'$*' said '$said', want $why" ;; esac
}
# within SECONDS COMMAND...: the command must end by itself in time.
within() { local s=$1; shift; timeout -k 2 "$s" "$@" || die "'$*' did not succeed within $s s (status $?)"; }
py() { /usr/bin/python3 -Bu "$@"; }
first_guest() { [ "$KC_INDEX" = 0 ]; }

# manifest DIR: every name with its type, mode, owner, size, mtime and target, and every file's checksum.
manifest() {
	(cd "$1" && find . -mindepth 1 ! -type d -printf '%P|%y|%m|%U:%G|%s|%T@|%l|%n\n' -o -mindepth 1 -type d -printf '%P|d|%m|%U:%G\n' |
		LC_ALL=C sort && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum)
}
# keep DIR: remember what DIR holds, so that verify_kept can ask for it after a remount and after a restart.
keep() {
	local at=$PWD/$1
	at=${at#"$MNT"/}
	at=/run/kept/${at//\//_}
	mkdir -p /run/kept
	echo "$PWD/$1" >"$at.dir"
	manifest "$1" >"$at.sum"
}
verify_kept() {
	local d n=0
	for d in /run/kept/*.dir; do
		[ -e "$d" ] || die "nothing was kept: run the whole group"
		[ -s "${d%.dir}.sum" ] || die "nothing is known of $(cat "$d")"
		manifest "$(cat "$d")" >/run/now.sum
		diff "${d%.dir}.sum" /run/now.sum | head -20 >/run/diff || true
		[ ! -s /run/diff ] || { cat /run/diff; die "$(cat "$d") is not what it was"; }
		n=$((n + 1))
	done
	echo "$n trees as they were"
}
mount_it() { kc-mount "${SPEC:-$KC_SERVER:/}" $MNT "$OPTS"; }
remount() { cd /; umount $MNT; mount_it; cd $MNT; }

case_directory() { echo "$MNT/$(basename "$JOB" .sh)/${1#case_}"; }

run_cases() {
	local c t0 rc word
	export JOB
	mount_it || { echo "the client could not mount with $OPTS"; dmesg | tail -20; return 1; }
	# Beforehand, since a case may leave a full disk to the next.
	for c in $CASES; do mkdir -p "$(case_directory "$c")" 2>/dev/null; done
	for c in $CASES; do
		[ "$KC_CLIENTS" = 1 ] || kc-barrier "start.$c"
		echo "$c" >"$KC_OUT/current"
		t0=$EPOCHREALTIME
		timeout -k 3 "${CASE_LIMIT_S:-150}" bash "$GUEST/one-case.sh" "$JOB" "$c" >"$KC_OUT/$c.log" 2>&1
		rc=$?
		case $rc in 0) word=ok ;; $SKIP) word=skipped ;; *) word=FAILED ;; esac
		if [ $rc = 124 ] || [ $rc = 137 ]; then
			echo "the case did not end; blocked tasks of the client:" >>"$KC_OUT/$c.log"
			dmesg -C; echo w >/proc/sysrq-trigger; dmesg | tail -60 >>"$KC_OUT/$c.log"
		fi
		awk -v a="$t0" -v b="$EPOCHREALTIME" -v w=$word -v c="$c" 'BEGIN { printf "%s %s %.1f\n", w, c, b - a }' >>"$KC_OUT/results"
	done
	rm -f "$KC_OUT/current"
	kc-stats job
	timeout -k 1 30 umount $MNT || { echo "umount: status $?"; umount -l $MNT; }
	return 0
}

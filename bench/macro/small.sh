# Many small files, as people make them, in the guest with its working directory at the mount. Sourced by the guest's shell.
# Given: $JOBS (names), $TREE (tar file), $REPOSITORY (bare, packed), $WHEEL. These lie on the host and are read before
# the time is taken, so that no phase waits for the host's disk.
set -eE
. "${BASH_SOURCE[0]%/*}/phase.sh"

export HOME=/root GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory \
	GIT_CONFIG_VALUE_0='*' PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 \
	PIP_ROOT_USER_ACTION=ignore

untar() { tar -xf "$TREE"; }
clone() { git clone -q "$REPOSITORY" clone; }
venv() { /usr/bin/python3 -m venv env; }
pip() { env/bin/pip install -q --no-deps "$WHEEL" >&2; }
names() { find "$@" -mindepth 1 | wc -l; }
made_untar() { names tree; }
made_clone() { names clone; }
made_venv() { names env | tee /run/venv; }
made_pip() { echo $(($(names env) - $(cat /run/venv))); }
wanted() { case " $JOBS " in *" $1 "*) true ;; *) false ;; esac; }

kc-hook network
# The first open waits for the server's grace; the sessions, the device and the connections to pools are made here too.
echo warm >warm; sync; cat warm >/dev/null

if wanted untar; then cat "$TREE" >/dev/null; phase untar untar; fi
if wanted clone; then kc-drop; cat "$REPOSITORY"/objects/pack/* "$(command -v git)" >/dev/null; phase clone clone; fi
if wanted venv || wanted pip; then
	kc-drop
	# The interpreter and all that it reads from the host: the same job once where it costs no server anything.
	/usr/bin/python3 -m venv /dev/shm/env
	rm -r /dev/shm/env
	phase venv venv
fi
if wanted pip; then cat "$WHEEL" >/dev/null; phase pip pip; fi

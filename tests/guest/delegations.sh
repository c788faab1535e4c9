# Opens that cost nothing: one client opens, reads one frame of 128 KiB and closes, again and again. Calls are counted, and
# exact; nothing here depends on time but that the delegations of closed files are used more often than once in a lease.

counting() { PYTHONPATH=$GUEST py "$@"; }

case_a_frame_read_by_reopening_its_file_costs_one_read_and_nothing_else() {
	counting - <<-'PY'
	from rpcs import *
	names, head = make(1), at_the_head()
	before = asked()
	frames(names, passes=2000)
	counts = since(before)
	others = sum(n for op, n in counts.items() if op != "READ")
	print("2000 frames:", counts, "and at the head", {op: n - head.get(op, 0) for op, n in at_the_head().items() if n > head.get(op, 0)})
	assert counts["READ"] == 2000, counts
	assert others < 10, counts
	PY
}

case_a_loop_over_many_files_costs_one_read_per_frame_after_the_second_pass() {
	counting - <<-'PY'
	from rpcs import *
	names = make(50)
	before = asked()
	frames(names, passes=2)
	print("to learn which files these are:", since(before))
	before = asked()
	frames(names, passes=20)
	counts = since(before)
	print("1000 frames:", counts)
	assert counts["READ"] == 1000, counts
	assert sum(counts.values()) - 1000 < 10, counts
	PY
}

case_a_pass_over_cached_files_asks_nothing() {
	# Of other files the client gives delegations back that it has not used for a lease: a new mount has none.
	unknown_files 50
	counting - <<-'PY'
	from rpcs import *
	names = sorted(os.listdir())
	frames(names, passes=3, cached=True)
	before = asked()
	frames(names, passes=3, cached=True)
	assert since(before) == {}, since(before)
	PY
}

# What a client wrote it has opened, too: only after a new mount is nothing known of it.
unknown_files() {
	local here=$PWD
	counting -c "from rpcs import *; make($1)"
	remount
	cd "$here"
}

case_files_that_are_opened_once_are_not_delegated() {
	unknown_files 300
	counting - <<-'PY'
	import json, subprocess
	from rpcs import *
	def held():
	    said = subprocess.run(["kc-hook", "status"], check=True, stdout=subprocess.PIPE, cwd="/").stdout
	    return json.loads(said)["delegations"]
	names, held_before = sorted(os.listdir()), held()
	before = asked()
	frames(names)
	counts = since(before)
	print("300 files once:", counts, "delegations before and after:", held_before, held())
	assert sum(counts.get(op, 0) for op in OPENS) == 300, counts
	assert held() <= held_before, held()
	PY
}

case_a_file_is_delegated_with_its_second_open() {
	unknown_files 1
	counting - <<-'PY'
	from rpcs import *
	name, = os.listdir()
	assert not delegated(name), "the first open"
	assert not delegated(name), "the second, which brings the delegation"
	assert delegated(name), "the third"
	PY
}

case_without_delegations_every_open_and_close_is_asked() {
	counting - <<-'PY'
	from rpcs import *
	names = make(10)
	before = asked()
	frames(names, passes=20)
	counts = since(before)
	print("200 frames:", counts)
	assert counts["READ"] == 200 and counts["CLOSE"] == 200, counts
	assert sum(counts.get(op, 0) for op in OPENS) == 200, counts
	PY
}

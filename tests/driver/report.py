"""What is printed about scenarios: one line each, the evidence under a failure, and the closing line."""
import sys


class Result:
    def __init__(self, name, word, seconds=0.0, evidence=""):
        assert word in ("ok", "FAILED", "skipped"), word
        self.name, self.word, self.seconds, self.evidence = name, word, seconds, evidence


class Report:
    def __init__(self):
        self.results = []

    def add(self, result):
        self.results.append(result)
        if result.word == "ok":
            print("ok %s %.1fs" % (result.name, result.seconds), flush=True)
            return
        why = result.evidence.strip().splitlines()
        if result.word == "skipped":
            print("skipped %s: %s" % (result.name, why[-1] if why else "no reason given"), flush=True)
            return
        print("FAILED %s" % result.name)
        for line in why[-40:]:
            print("    | " + line)
        sys.stdout.flush()

    def close(self):
        count = {w: sum(r.word == w for r in self.results) for w in ("ok", "FAILED", "skipped")}
        tail = ", %d skipped" % count["skipped"] if count["skipped"] else ""
        print("%d passed, %d failed%s" % (count["ok"], count["FAILED"], tail), flush=True)
        return 1 if count["FAILED"] or not count["ok"] else 0

"""The printed report of scenarios: one line each, the evidence under a failure, and the closing line."""
import threading


class Result:
    def __init__(self, name, word, seconds=0.0, evidence=""):
        assert word in ("ok", "FAILED", "skipped"), word
        self.name, self.word, self.seconds, self.evidence = name, word, seconds, evidence


class Report:
    """Several threads tell it their results; what belongs together stays together."""

    def __init__(self):
        self.results = []
        self.one_at_a_time = threading.Lock()

    def say(self, text):
        with self.one_at_a_time:
            print(text, flush=True)

    def add(self, result):
        self.results.append(result)
        why = result.evidence.strip().splitlines()
        if result.word == "ok":
            self.say("ok %s %.1fs" % (result.name, result.seconds))
        elif result.word == "skipped":
            self.say("skipped %s: %s" % (result.name, why[-1] if why else "no reason given"))
        else:
            self.say("\n".join(["FAILED %s" % result.name] + ["    | " + line for line in why[-40:]]))

    def close(self):
        count = {w: sum(r.word == w for r in self.results) for w in ("ok", "FAILED", "skipped")}
        # Once more at the end: whoever reads only that sees what failed.
        for r in self.results:
            if r.word == "FAILED":
                print("FAILED %s: %s" % (r.name, " | ".join(l.strip() for l in r.evidence.strip().splitlines()[-4:])), flush=True)
        tail = ", %d skipped" % count["skipped"] if count["skipped"] else ""
        print("%d passed, %d failed%s" % (count["ok"], count["FAILED"], tail), flush=True)
        return 1 if count["FAILED"] or not count["ok"] else 0

// Views that follow the instance: every two seconds, while somebody looks, new HTML is merged into the page. Lines of
// throughput are drawn from what was seen since the page was opened.
"use strict";

(() => {
  const { say, create, merge, parse, localTimes } = forebay;
  const live = document.getElementById("live");
  if (!live) return;
  const pause = document.getElementById("pause");
  const pulse = document.getElementById("pulse");
  const everyMs = 2000;
  const pointsMax = 60;
  const history = new Map();
  let timer = 0;
  let isPaused = false;
  let problems = 0;
  let spoken = live.querySelector("[data-say]")?.dataset.say;

  /** A rate as it is, or that of a counter since it was last seen. */
  function observe(svg, now) {
    const seen = history.get(svg.dataset.key) || { values: [], counter: null, at: 0 };
    history.set(svg.dataset.key, seen);
    if (svg.dataset.counter === undefined) {
      seen.values.push(Number(svg.dataset.value));
    } else {
      const counter = Number(svg.dataset.counter);
      if (seen.counter !== null && now > seen.at) {
        // A restart counts from zero again.
        seen.values.push(Math.max(0, counter - seen.counter) / ((now - seen.at) / 1000));
      }
      seen.counter = counter;
      seen.at = now;
      const text = svg.parentElement.querySelector("[data-per-second]");
      const last = seen.values.at(-1);
      if (text) text.textContent = last === undefined ? "" : last.toFixed(last > 0 && last < 10 ? 1 : 0);
    }
    if (seen.values.length > pointsMax) seen.values.shift();
    return seen.values;
  }

  function draw(svg, values) {
    const top = Math.max(...values, 1);
    const start = pointsMax - values.length;
    const points = values.map((value, at) => `${start + at + 0.5},${(15 - 14 * value / top).toFixed(1)}`);
    svg.firstElementChild.setAttribute("points", points.length > 1 ? points.join(" ") : "");
  }

  function settle() {
    const now = performance.now();
    const keys = new Set();
    for (const svg of live.querySelectorAll("svg.spark")) {
      keys.add(svg.dataset.key);
      draw(svg, observe(svg, now));
    }
    for (const key of history.keys()) if (!keys.has(key)) history.delete(key);
    localTimes(live);
  }

  function tell(text, kind) {
    if (pulse.textContent !== text) pulse.textContent = text;
    pulse.className = `pulse ${kind}`;
  }

  async function follow() {
    const response = await fetch(`/ui/live/${live.dataset.view}`, { signal: AbortSignal.timeout(10000) });
    if (response.status === 401) return ended();
    if (!response.ok) throw new Error(String(response.status));
    const fresh = create("div", { id: "live" }, ...parse(await response.text()).body.childNodes);
    fresh.dataset.view = live.dataset.view;
    merge(live, fresh);
    settle();
    if (problems > 0) say("The server answers again.");
    problems = 0;
    tell("Live", "");
    const news = live.querySelector("[data-say]")?.dataset.say;
    if (news !== spoken) say(news);
    spoken = news;
    return true;
  }

  function ended() {
    tell("Session ended", "bad");
    const link = create("a", { href: `/ui/login?to=${encodeURIComponent(location.pathname)}`, textContent: "Log in again" });
    live.prepend(create("p", { className: "note bad" }, "Your session has ended; this is not up to date. ", link));
    say("Your session has ended.");
    pause.hidden = true;
    return false;
  }

  async function round() {
    clearTimeout(timer);
    if (isPaused || document.visibilityState !== "visible") return;
    let goesOn = true;
    try {
      goesOn = await follow();
    } catch {
      problems += 1;
      tell("No answer", "bad");
      if (problems === 2) say("The server does not answer; trying again.");
    }
    clearTimeout(timer);
    // A server that is down is asked less and less often, up to every half minute.
    if (goesOn) timer = setTimeout(round, Math.min(everyMs * 2 ** Math.min(problems, 4), 30000));
  }

  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause";
    tell(isPaused ? "Paused" : "Live", isPaused ? "still" : "");
    if (!isPaused) round();
  });
  document.addEventListener("visibilitychange", round);
  settle();
  timer = setTimeout(round, everyMs);
})();

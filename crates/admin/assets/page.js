// What every view needs: times in the reader's zone, dialogs, words for errors, and a merge of new HTML into the page.
"use strict";

const forebay = (() => {
  const two = (number) => String(number).padStart(2, "0");

  /** Times are written in UTC; here they become local, of the same width, with the whole of it as title. */
  function localTimes(root) {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const text = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
        `${two(at.getHours())}:${two(at.getMinutes())}`;
      if (element.textContent !== text) element.textContent = text;
      element.title = at.toLocaleString();
    }
  }

  /** To those who listen instead of look. */
  function say(text) {
    const region = document.getElementById("said");
    if (region) region.textContent = text;
  }

  const units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

  /** As the server writes sizes (`types::display`). */
  function size(bytes) {
    if (bytes < 1024) return `${bytes} B`;
    let unit = -1;
    let value = bytes;
    do {
      value /= 1024;
      unit += 1;
    } while (value >= 1024 && unit + 1 < units.length);
    return `${value < 100 ? (Math.floor(value * 10) / 10).toFixed(1) : Math.floor(value)} ${units[unit]}`;
  }

  /** Why a request was not done, in a sentence. What the server says of it stands behind, where it adds something. */
  function words(status, detail) {
    const known = {
      0: "The server cannot be reached. Is the network up?",
      401: "Your session has ended. Log in again.",
      403: "You have no permission to do this.",
      404: "It is not there any more.",
      405: "Something of this name exists already.",
      408: "The server waited too long for data.",
      409: "The folder does not exist any more, or something else is in the way.",
      412: "Something of this name exists already.",
      413: "The file is too large for this server.",
      414: "The name is too long.",
      423: "It is locked, or open elsewhere. Try again later.",
      503: "The server is busy. Try again in a moment.",
      507: "There is no space left on the server.",
    };
    const text = known[status] || `The server answered ${status}.`;
    const isPlain = detail && detail.length < 200 && !detail.startsWith("<");
    return isPlain && !(status in known) ? `${text} ${detail.trim()}` : text;
  }

  /** A request that changes something; the header shows that a page of ours sends it. */
  async function request(method, path, headers = {}, body = undefined) {
    let response;
    try {
      response = await fetch(path, { method, headers: { "X-Forebay-Page": "1", ...headers }, body });
    } catch {
      return { ok: false, status: 0, text: "" };
    }
    // Parts of a tree could not be changed: 207 says which, and is no success.
    const text = await response.text().catch(() => "");
    return { ok: response.ok && response.status !== 207, status: response.status === 207 ? 423 : response.status, text };
  }

  function create(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  function sameKind(a, b) {
    return a.nodeType === b.nodeType && a.nodeName === b.nodeName &&
      (a.nodeType !== Node.ELEMENT_NODE || a.getAttribute("data-key") === b.getAttribute("data-key"));
  }

  function mergeAttributes(old, fresh) {
    for (const { name, value } of [...fresh.attributes]) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !name.startsWith("aria-expanded")) old.removeAttribute(name);
    }
  }

  /** Makes `old` like `fresh` and touches only what differs: focus, selection and scrolling stay. */
  function merge(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    mergeAttributes(old, fresh);
    // What the script drew is the script's.
    if (old.matches("svg.spark") || old.hasAttribute("data-per-second")) return;
    let next = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      let match = next;
      const key = child.nodeType === Node.ELEMENT_NODE && child.getAttribute("data-key");
      if (key) while (match && !sameKind(match, child)) match = match.nextSibling;
      if (match && sameKind(match, child)) {
        if (match !== next) old.insertBefore(match, next);
        else next = next.nextSibling;
        merge(match, child);
      } else {
        old.insertBefore(document.importNode(child, true), next);
      }
    }
    while (next) {
      const gone = next;
      next = next.nextSibling;
      gone.remove();
    }
  }

  function parse(text) {
    return new DOMParser().parseFromString(text, "text/html");
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-close]");
    if (button) button.closest("dialog").close();
    // A click beside the dialog, on its backdrop, has the dialog itself as target.
    if (event.target.matches("dialog[open]")) event.target.close();
  });

  localTimes(document);
  return { localTimes, say, size, words, request, create, merge, parse };
})();

// The first 64 KiB of a text. What turns out to be no text is not shown.
"use strict";

(() => {
  const { size, words } = forebay;
  const section = document.getElementById("preview");
  if (!section) return;
  const shownMax = 64 * 1024;
  const pre = section.querySelector("pre");

  function instead(text) {
    const note = document.createElement("p");
    note.className = "nothing";
    note.textContent = text;
    section.replaceChildren(note);
  }

  function isText(bytes, text) {
    if (bytes.includes(0)) return false;
    const broken = text.split("\ufffd").length - 1;
    return broken * 20 < Math.max(text.length, 1);
  }

  async function load() {
    const response = await fetch(section.dataset.src, { headers: { Range: `bytes=0-${shownMax - 1}` } });
    if (!response.ok) return instead(words(response.status, ""));
    // A server or file system in between may have left out the range: the rest is not wanted.
    const reader = response.body.getReader();
    const bytes = new Uint8Array(shownMax);
    let length = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const part = value.subarray(0, shownMax - length);
      bytes.set(part, length);
      length += part.length;
      if (length === shownMax) {
        reader.cancel().catch(() => {});
        break;
      }
    }
    const known = bytes.subarray(0, length);
    const total = Number(section.dataset.size);
    // A character that was cut at the end is no broken one.
    const text = new TextDecoder("utf-8").decode(known, { stream: total > length });
    if (!isText(known, text)) {
      return instead("perhaps" in section.dataset ? "There is no preview of this kind of file." :
        "This file says that it is text, but it is not.");
    }
    pre.textContent = text;
    if (total > length) {
      const more = document.createElement("p");
      more.className = "fine";
      more.textContent = `The first ${size(length)} of ${size(total)}.`;
      section.append(more);
    }
    return undefined;
  }

  load().catch(() => instead(words(0, "")));
})();

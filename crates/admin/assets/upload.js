// Uploads: chosen or dropped files go by PUT, two at a time, each with its progress; a file that is there already is
// replaced only when asked for. A PUT becomes visible when it is complete, so a cancelled one leaves nothing.
"use strict";

(() => {
  const { say, size, words, create, refresh, encode, suffix } = forebay;
  const listing = document.getElementById("listing");
  const picker = document.getElementById("upload-files");
  if (!picker || !listing || !("upload" in listing.dataset)) return;
  const panel = document.getElementById("transfers");
  const list = document.getElementById("transfers-list");
  const title = document.getElementById("transfers-title");
  const close = document.getElementById("transfers-close");
  const atOnce = 2;
  const waiting = [];
  let running = 0;
  let finished = 0;

  function add(file) {
    const bar = create("progress", { max: Math.max(file.size, 1), value: 0 });
    bar.setAttribute("aria-label", `Upload of ${file.name}`);
    const state = create("span", { className: "fine", textContent: `waiting, ${size(file.size)}` });
    const buttons = create("span", { className: "transfer-buttons" });
    const item = create("li", {}, create("bdi", { className: "transfer-name", textContent: file.name, title: file.name }),
      buttons, bar, state);
    const transfer = { file, bar, state, buttons, item, request: null, mayReplace: false };
    offer(transfer, ["Cancel", () => cancel(transfer)]);
    list.append(item);
    waiting.push(transfer);
  }

  function offer(transfer, ...choices) {
    transfer.buttons.replaceChildren(...choices.map(([text, act]) => {
      const button = create("button", { type: "button", className: "quiet", textContent: text });
      button.setAttribute("aria-label", `${text} ${transfer.file.name}`);
      button.addEventListener("click", act);
      return button;
    }));
  }

  function cancel(transfer) {
    const at = waiting.indexOf(transfer);
    if (at >= 0) waiting.splice(at, 1);
    if (transfer.request) transfer.request.abort();
    else end(transfer, "Cancelled; nothing of it was kept.", "bad");
  }

  function end(transfer, text, kind) {
    transfer.state.textContent = text;
    transfer.item.className = kind;
    transfer.bar.hidden = true;
    transfer.buttons.replaceChildren();
    show();
  }

  function again(transfer) {
    transfer.item.className = "";
    transfer.bar.hidden = false;
    transfer.bar.value = 0;
    transfer.state.textContent = "waiting";
    offer(transfer, ["Cancel", () => cancel(transfer)]);
    waiting.push(transfer);
    pump();
  }

  /** Known without sending a byte; what this page does not list the server finds, by If-None-Match. */
  function isListed(file) {
    return [...listing.querySelectorAll("tr[data-file]")].some((row) => row.dataset.label === file.name);
  }

  function pump() {
    while (running < atOnce && waiting.length > 0) {
      const transfer = waiting.shift();
      if (!transfer.mayReplace && isListed(transfer.file)) askToReplace(transfer);
      else start(transfer);
    }
    show();
  }

  function start(transfer) {
    running += 1;
    const { file } = transfer;
    const request = new XMLHttpRequest();
    transfer.request = request;
    const began = performance.now();
    request.open("PUT", `${listing.dataset.path}${encode(file.name)}${suffix}`);
    request.setRequestHeader("X-Forebay-Page", "1");
    if (file.type) request.setRequestHeader("Content-Type", file.type);
    if (!transfer.mayReplace) request.setRequestHeader("If-None-Match", "*");
    request.upload.onprogress = (event) => {
      const seconds = (performance.now() - began) / 1000;
      transfer.bar.value = event.loaded;
      const rate = seconds > 0.5 ? `, ${size(Math.round(event.loaded / seconds))}/s` : "";
      transfer.state.textContent = event.loaded < event.total
        ? `${size(event.loaded)} of ${size(event.total)}${rate}` : "the server writes it to disk …";
    };
    request.onload = () => answered(transfer, request);
    request.onerror = () => failed(transfer, words(0, ""));
    request.onabort = () => end(transfer, "Cancelled; nothing of it was kept.", "bad");
    request.onloadend = () => {
      running -= 1;
      transfer.request = null;
      pump();
      if (running === 0 && waiting.length === 0) done();
    };
    request.send(file);
  }

  function answered(transfer, request) {
    if (request.status === 412 && !transfer.mayReplace) {
      askToReplace(transfer);
    } else if (request.status >= 200 && request.status < 300) {
      finished += 1;
      end(transfer, `${size(transfer.file.size)}, done`, "good");
      refresh();
    } else {
      failed(transfer, words(request.status, request.responseText));
    }
  }

  function askToReplace(transfer) {
    end(transfer, "A file of this name exists already.", "bad");
    offer(transfer, ["Replace", () => {
      transfer.mayReplace = true;
      again(transfer);
    }], ["Skip", () => { transfer.item.remove(); show(); }]);
    say(`${transfer.file.name} exists already. Replace it?`);
  }

  function failed(transfer, why) {
    end(transfer, why, "bad");
    offer(transfer, ["Try again", () => again(transfer)]);
    say(`${transfer.file.name}: ${why}`);
  }

  function done() {
    if (finished > 0) say(finished === 1 ? "One file was uploaded." : `${finished} files were uploaded.`);
    finished = 0;
  }

  function show() {
    panel.hidden = list.children.length === 0;
    const left = running + waiting.length;
    title.textContent = left > 0 ? `Uploading, ${left} to go` : "Uploads";
    close.hidden = left > 0;
  }

  function refuse(name, why) {
    list.append(create("li", { className: "bad" }, create("bdi", { className: "transfer-name", textContent: name }),
      create("span", { className: "fine", textContent: why })));
    say(`${name}: ${why}`);
  }

  function take(files) {
    for (const file of files) add(file);
    pump();
  }

  document.getElementById("upload").addEventListener("click", () => picker.click());
  picker.addEventListener("change", () => {
    take(picker.files);
    picker.value = "";
  });
  close.addEventListener("click", () => {
    list.replaceChildren();
    show();
    document.getElementById("upload").focus();
  });

  // Dropped anywhere in the window; `depth` counts the elements the pointer is in.
  let depth = 0;
  const hasFiles = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
  const mark = (isOver) => document.body.classList.toggle("dropping", isOver);
  addEventListener("dragenter", (event) => { if (hasFiles(event)) { depth += 1; mark(true); } });
  addEventListener("dragleave", (event) => { if (hasFiles(event)) { depth -= 1; mark(depth > 0); } });
  addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    depth = 0;
    mark(false);
    // A dropped folder looks like a file without content that cannot be read.
    const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
    const folders = items.filter((item) => item.webkitGetAsEntry?.()?.isDirectory);
    for (const folder of folders) refuse(folder.webkitGetAsEntry().name, "A folder cannot be uploaded; its files can.");
    take(items.filter((item) => !folders.includes(item)).map((item) => item.getAsFile()).filter(Boolean));
  });

  addEventListener("beforeunload", (event) => { if (running + waiting.length > 0) event.preventDefault(); });
})();

"use strict";
// Keys, help and search of the page with a run; without it every button works all the same.
(() => {
  const help = document.getElementById("help");
  const search = document.querySelector("form.search");
  const field = document.getElementById("search");
  const said = search.querySelector("output");
  const run = document.querySelector("main");
  let sent = false;
  let hits = [];
  let at = -1;
  let folds = null;

  // one label a page: what is pressed while the next one loads is of no run
  const press = (button) => {
    if (!sent && button) button.click();
  };
  document.addEventListener("submit", (event) => {
    if (event.target.method === "dialog") return;
    if (event.target === search) return event.preventDefault();
    if (sent) return event.preventDefault();
    sent = true;
  });
  addEventListener("pageshow", () => { sent = false; });

  const isTyping = (element) =>
    element.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(element.tagName);

  const step = (by) => {
    const tops = [...document.querySelectorAll(".steps > li")];
    const here = tops.findIndex((one) => one.getBoundingClientRect().top > 20);
    const now = here < 0 ? tops.length : here;
    const next = tops[by > 0 ? now + (tops[now] && tops[now].getBoundingClientRect().top < 40 ? 1 : 0) : now - 2];
    (next || (by > 0 ? tops.at(-1) : tops[0]))?.scrollIntoView({ block: "start" });
  };

  const unfold = () => {
    const every = [...run.querySelectorAll(".instruction details, .run details")];
    const closed = every.filter((one) => !one.open);
    closed.forEach((one) => { one.open = true; });
    if (closed.length) folds = closed;
    else {
      (folds || every).forEach((one) => { one.open = false; });
      folds = null;
    }
  };

  const find = () => {
    const wanted = field.value.toLowerCase();
    hits = [];
    at = -1;
    if (wanted) {
      const texts = document.createTreeWalker(run, NodeFilter.SHOW_TEXT);
      while (texts.nextNode() && hits.length < 5000) {
        const node = texts.currentNode;
        if (!node.parentElement.closest(".instruction, .steps")) continue;
        // an ending of a text that is shown whole below would be found twice
        const fold = node.parentElement.closest("pre")?.nextElementSibling;
        if (fold?.matches(".whole")) continue;
        const lower = node.data.toLowerCase();
        if (lower.length !== node.data.length) continue;
        for (let i = lower.indexOf(wanted); i >= 0; i = lower.indexOf(wanted, i + wanted.length)) {
          const range = new Range();
          range.setStart(node, i);
          range.setEnd(node, i + wanted.length);
          hits.push(range);
        }
      }
    }
    if (globalThis.CSS?.highlights) CSS.highlights.set("hit", new Highlight(...hits));
    if (hits.length) go(1);
    else mark();
  };
  const mark = () => {
    said.value = !field.value ? "" : hits.length ? `${at + 1} of ${hits.length}` : run.querySelector(".part, .gap") ? "not found here; see the whole run as text" : "not found";
    const here = hits[at] ? [hits[at]] : [];
    if (globalThis.CSS?.highlights) CSS.highlights.set("here", new Highlight(...here));
  };
  const go = (by) => {
    if (!hits.length) return;
    at = (at + by + hits.length) % hits.length;
    let element = hits[at].startContainer.parentElement;
    for (let up = element; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
    element.scrollIntoView({ block: "center" });
    const box = hits[at].getBoundingClientRect();
    scrollBy({ top: box.top - innerHeight / 2 });
    mark();
  };

  const keys = {
    "?": () => help.showModal(),
    "/": () => { field.focus(); field.select(); },
    c: () => {
      document.querySelector(".remark").open = true;
      document.querySelector(".remark textarea").focus();
    },
    e: unfold,
    j: () => step(1),
    h: () => step(-1),
    n: () => go(1),
    p: () => go(-1),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    const typing = isTyping(event.target);
    if (event.key === "Escape" && typing) return event.target.blur();
    if (event.target === field && event.key === "Enter") {
      event.preventDefault();
      return go(event.shiftKey ? -1 : 1);
    }
    if (typing) return;
    if (help.open) {
      if (event.key === "?") { event.preventDefault(); help.close(); }
      return;
    }
    const key = event.key.length === 1 ? event.key.toLowerCase() : "";
    const button = key && document.querySelector(`[data-key~="${CSS.escape(key)}"]`);
    if (!button && !keys[key]) return;
    event.preventDefault();
    // a key that is held down is one label
    if (button) { if (!event.repeat) press(button); } else keys[key]();
  });

  search.hidden = false;
  field.addEventListener("input", find);
  document.getElementById("unfold").addEventListener("click", unfold);
})();

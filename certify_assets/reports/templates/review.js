"use strict";
// Keys of the page with a run; without them every button works all the same.
(() => {
  let sent = false;

  // one label a page: what is pressed while the next one loads is of no run
  document.addEventListener("submit", (event) => {
    if (sent) event.preventDefault();
    sent = true;
  });
  addEventListener("pageshow", () => { sent = false; });

  const isTyping = (element) => ["INPUT", "TEXTAREA"].includes(element.tagName);

  const step = (by) => {
    const tops = [...document.querySelectorAll(".steps > li")];
    const here = tops.findIndex((one) => one.getBoundingClientRect().top > 20);
    const now = here < 0 ? tops.length : here;
    const next = tops[by > 0 ? now + (tops[now] && tops[now].getBoundingClientRect().top < 40 ? 1 : 0) : now - 2];
    (next || (by > 0 ? tops.at(-1) : tops[0]))?.scrollIntoView({ block: "start" });
  };

  const keys = {
    c: () => {
      document.querySelector(".remark").open = true;
      document.querySelector(".remark textarea").focus();
    },
    j: () => step(1),
    h: () => step(-1),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    if (event.key === "Escape") return event.target.blur();
    if (isTyping(event.target)) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : "";
    const button = key && document.querySelector(`[data-key~="${CSS.escape(key)}"]`);
    if (!button && !keys[key]) return;
    event.preventDefault();
    // a key that is held down is one label
    if (!button) keys[key]();
    else if (!event.repeat && !sent) button.click();
  });
})();

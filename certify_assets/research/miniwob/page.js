// What an agent may see of a MiniWoB++ page: the task's own elements, never the harness around them.
(() => {
  // The page's clock is the driver's: it moves only in taskAdvance, so timers and animations are the same in every run.
  const RealDate = Date;
  const realFrame = window.requestAnimationFrame.bind(window);
  const BASE = 1600000000000;
  let now = BASE;
  let nextId = 1;
  let timers = [];
  const add = (f, ms, args, every) => {
    const id = nextId++;
    timers.push({ id, at: now + Math.max(Number(ms) || 0, every ? 1 : 0), f, args, every: every ? Math.max(Number(ms) || 0, 1) : 0 });
    return id;
  };
  const drop = (id) => { timers = timers.filter((t) => t.id !== id); };
  window.setTimeout = (f, ms, ...args) => add(f, ms, args, false);
  window.setInterval = (f, ms, ...args) => add(f, ms, args, true);
  window.requestAnimationFrame = (f) => add(() => f(now - BASE), 16, [], false);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = drop;
  performance.now = () => now - BASE;
  window.Date = new Proxy(RealDate, {
    construct: (target, args, type) => Reflect.construct(target, args.length ? args : [now], type),
    apply: () => new RealDate(now).toString(),
    get: (target, key) => (key === 'now' ? () => now : Reflect.get(target, key)),
  });
  window.taskAdvance = (ms) => {
    const end = now + ms;
    for (let fired = 0; fired < 5000; fired++) {
      const due = timers.filter((t) => t.at <= end).sort((a, b) => a.at - b.at || a.id - b.id)[0];
      if (!due) break;
      now = Math.max(now, due.at);
      if (due.every) due.at = now + due.every; else drop(due.id);
      try { if (typeof due.f === 'function') due.f(...due.args); } catch (error) { console.error(error); }
    }
    now = end;
  };

  const HARNESS = ['reward-display', 'sync-task-cover', 'click-canvas', 'query', 'correct'];
  const SKIP = ['SCRIPT', 'STYLE', 'OPTION', 'DEFS', 'NOSCRIPT', 'IMG', 'BR', 'HR', 'LINEARGRADIENT', 'STOP', 'DESC'];
  const SHAPES = ['circle', 'rect', 'polygon', 'text', 'line', 'ellipse', 'path'];
  const seen = [];
  const refs = new WeakMap();
  const refOf = (e) => {
    if (!refs.has(e)) { refs.set(e, seen.length); seen.push(e); }
    return refs.get(e);
  };
  const squeeze = (s) => (s || '').replace(/\s+/g, ' ').trim();
  const ownText = (e) => squeeze([...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data).join(' '));
  const shown = (e, box) => {
    if (box.width < 1 && box.height < 1) return false;
    const style = getComputedStyle(e);
    return style.visibility !== 'hidden' && style.display !== 'none' && style.opacity !== '0';
  };
  const labelOf = (e) => {
    if (e.labels && e.labels.length) return squeeze(e.labels[0].textContent);
    const before = e.previousElementSibling;
    if (before && squeeze(before.textContent)) return squeeze(before.textContent).slice(0, 40);
    const row = e.closest('td,p,div');
    const head = row && row.previousElementSibling;
    return head ? squeeze(head.textContent).slice(0, 40) : '';
  };
  const kindOf = (e, tag, cls, role) => {
    if (tag === 'input') {
      if (e.type === 'checkbox' || e.type === 'radio') return e.type;
      return e.type === 'button' || e.type === 'submit' ? 'button' : 'field';
    }
    if (tag === 'textarea') return 'field';
    if (tag === 'select') return 'list';
    if (tag === 'button' || /^(button|final|submit)$/.test(cls)) return 'button';
    if (tag === 'a' || /alink/.test(cls)) return 'link';
    if (role === 'tab' || role === 'menuitem') return role;
    if (e.ownerSVGElement && SHAPES.includes(tag)) return 'shape';
    if (!e.children.length && !squeeze(e.textContent) && (cls || e.id)) return 'icon';
    return 'text';
  };
  const colourOf = (e, kind, style) => {
    if (kind === 'shape') return e.getAttribute('fill') || style.fill;
    return /rgba\(0, 0, 0, 0\)/.test(style.backgroundColor) ? '' : style.backgroundColor;
  };
  const describe = (e, box) => {
    const tag = e.tagName.toLowerCase();
    const cls = squeeze(typeof e.className === 'string' ? e.className : e.getAttribute('class'));
    const role = e.getAttribute('role') || '';
    const kind = kindOf(e, tag, cls, role);
    const style = getComputedStyle(e);
    const answer = { ref: refOf(e), tag, kind, cls, id: e.id || '', text: ownText(e), full: squeeze(e.textContent).slice(0, 160),
      x: box.left + box.width / 2 + scrollX, y: box.top + box.height / 2 + scrollY, w: box.width, h: box.height, colour: colourOf(e, kind, style),
      size: parseFloat(style.fontSize), type: e.type || '', index: e.dataset && e.dataset.index ? e.dataset.index : '' };
    if (kind === 'field') { answer.value = e.value; answer.label = labelOf(e); answer.editable = !e.disabled && !e.readOnly; }
    if (kind === 'checkbox' || kind === 'radio') { answer.checked = e.checked; answer.label = labelOf(e); }
    if (kind === 'list') {
      answer.options = [...e.options].map((o) => squeeze(o.textContent));
      answer.chosen = [...e.selectedOptions].map((o) => squeeze(o.textContent));
    }
    return answer;
  };
  const walk = (e, out) => {
    if (HARNESS.includes(e.id) || SKIP.includes(e.tagName.toUpperCase())) return;
    const box = e.getBoundingClientRect();
    const style = getComputedStyle(e);
    if (style.display === 'none') return;
    const keep = e !== document.body && e.id !== 'wrap' && e.id !== 'area' && shown(e, box);
    if (keep) {
      const item = describe(e, box);
      if (item.kind !== 'text' || item.text || item.colour) out.push(item);
    }
    for (const child of e.children) walk(child, out);
  };
  window.taskView = () => { const out = []; walk(document.body, out); return out; };
  // a click before the scroll is drawn would land on what was there before it
  window.taskPoint = async (ref) => {
    const before = seen[ref].getBoundingClientRect().top;
    seen[ref].scrollIntoView({ block: 'nearest' });
    const box = seen[ref].getBoundingClientRect();
    if (box.top !== before) await frames();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  window.taskElement = (ref) => seen[ref];
  window.taskUtterance = () => { const u = core.getUtterance(); return typeof u === 'string' ? u : u.utterance; };
  window.taskStart = (seed) => {
    Math.seedrandom(seed);
    core.EPISODE_MAX_TIME = 3600000;
    core.startEpisodeReal();
    return window.taskUtterance();
  };
  const frames = () => new Promise((go) => { realFrame(() => realFrame(go)); });
  window.taskFrames = frames;
  const addresses = () => [...document.styleSheets].flatMap((sheet) => {
    const base = sheet.href || location.href;
    return [...sheet.cssRules].flatMap((rule) => [...rule.cssText.matchAll(/url\("?([^")]+)"?\)/g)].map((m) => new URL(m[1], base).href));
  });
  // icons are images that styles name: without them an icon has no size, and whether a click hits it is luck
  window.taskImages = async () => {
    const pictures = [...new Set(addresses())].filter((a) => /\.(png|jpe?g|gif|svg)$/.test(a)).map((a) => {
      const image = new Image();
      image.src = a;
      return image;
    });
    window.taskPictures = pictures;
    await Promise.allSettled(pictures.map((image) => image.decode()));
  };
  window.taskReady = () => typeof core !== 'undefined' && WOB_TASK_READY && core.cover_div !== null;
  window.taskLook = (ms) => { if (ms) taskAdvance(ms); return [WOB_DONE_GLOBAL, WOB_DONE_GLOBAL ? [] : taskView()]; };
  window.taskRaw = () => WOB_DONE_GLOBAL ? WOB_RAW_REWARD_GLOBAL : null;
})();


(() => {
  "use strict";
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const story = byId("story");
  const folds = () => document.querySelectorAll("main details");

  // The color theme.
  const theme = () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  };
  byId("theme").addEventListener("click", theme);

  // Folding.
  const fold = byId("fold");
  const foldAll = () => {
    const open = fold.getAttribute("aria-pressed") !== "true";
    folds().forEach((one) => { one.open = open; });
    fold.setAttribute("aria-pressed", open);
    fold.textContent = open ? "Collapse all" : "Expand all";
  };
  fold.addEventListener("click", foldAll);
  const reveal = (node) => {
    for (let one = node.parentElement; one; one = one.parentElement) {
      if (one.tagName === "DETAILS") one.open = true;
    }
  };
  let printed = [];
  addEventListener("beforeprint", () => {
    printed = [...folds()].filter((one) => !one.open);
    printed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => printed.forEach((one) => { one.open = false; }));

  // Search. A hit may span pieces of a line that have different colors, so whole lines and
  // paragraphs are searched.
  const INLINE = new Set(["SPAN", "MARK", "B", "STRONG", "EM", "I", "CODE", "A", "SMALL"]);
  const MOST = 5000;
  const input = byId("q");
  const count = byId("hits");
  let blocks = null;
  let hits = [];
  let now = -1;
  const gather = () => {
    const found = new Map();
    const walk = document.createTreeWalker(story, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      let home = node.parentElement;
      if (home.closest("button, .here")) continue;
      while (INLINE.has(home.tagName)) home = home.parentElement;
      let block = found.get(home);
      if (!block) found.set(home, block = { text: "", nodes: [], starts: [] });
      block.starts.push(block.text.length);
      block.nodes.push(node);
      block.text += node.data;
    }
    return [...found.values()].map((block) => {
      const low = block.text.toLowerCase();
      return { ...block, low: low.length === block.text.length ? low : block.text };
    });
  };
  const place = (block, at) => {
    let i = block.starts.length - 1;
    while (block.starts[i] > at) i--;
    return [block.nodes[i], at - block.starts[i]];
  };
  const paint = () => {
    if (!CSS.highlights) return;
    CSS.highlights.set("hits", new Highlight(...hits));
    CSS.highlights.set("hit", now < 0 ? new Highlight() : new Highlight(hits[now]));
  };
  const tell = () => {
    const all = hits.length >= MOST ? `${MOST}+` : hits.length;
    count.textContent = input.value ? (hits.length ? `${now + 1} / ${all}` : "no hits") : "";
  };
  // A hit may be far from the start of its element, inside boxes that scroll in both directions.
  const bringIntoView = (range) => {
    const from = range.startContainer.parentElement;
    from.scrollIntoView({ block: "center", behavior: "instant" });
    for (let box = from; box && box !== document.body; box = box.parentElement) {
      const [frame, hit] = [box.getBoundingClientRect(), range.getBoundingClientRect()];
      if (box.scrollHeight > box.clientHeight && (hit.top < frame.top || hit.bottom > frame.bottom)) {
        box.scrollTop += hit.top - frame.top - (box.clientHeight - hit.height) / 2;
      }
      if (box.scrollWidth > box.clientWidth && (hit.left < frame.left || hit.right > frame.right)) {
        box.scrollLeft += hit.left - frame.left - (box.clientWidth - hit.width) / 2;
      }
    }
    const hit = range.getBoundingClientRect();
    if (hit.top < 80 || hit.bottom > innerHeight) {
      scrollBy({ top: hit.top - innerHeight / 2, behavior: "instant" });
    }
  };
  const go = (step) => {
    if (!hits.length) return;
    now = (now + step + hits.length) % hits.length;
    const home = hits[now].startContainer;
    reveal(home);
    document.querySelector(".found")?.classList.remove("found");
    home.parentElement.closest(".entry")?.classList.add("found");
    bringIntoView(hits[now]);
    paint();
    tell();
  };
  const search = () => {
    const word = input.value.toLowerCase();
    hits = [];
    now = -1;
    blocks ??= gather();
    for (const block of word ? blocks : []) {
      for (let at = block.low.indexOf(word); at >= 0 && hits.length < MOST; at = block.low.indexOf(word, at + word.length)) {
        const range = document.createRange();
        range.setStart(...place(block, at));
        const [node, end] = place(block, at + word.length - 1);
        range.setEnd(node, end + 1);
        hits.push(range);
      }
    }
    paint();
    tell();
    go(1);
  };
  let waiting;
  input.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 120); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); go(event.shiftKey ? -1 : 1); }
    if (event.key === "Escape") { input.value = ""; search(); input.blur(); }
  });
  byId("next").addEventListener("click", () => go(1));
  byId("prev").addEventListener("click", () => go(-1));

  // Copying.
  const copy = (text) => navigator.clipboard?.writeText(text) ?? Promise.reject();
  const copyOld = (text) => {
    // A page in a file may have no clipboard API.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
  const copied = async (button, text) => {
    const done = await copy(text).then(() => true, () => copyOld(text));
    button.textContent = done ? "Copied" : "Failed";
    setTimeout(() => { button.textContent = button.dataset.label; }, 1200);
  };
  document.querySelectorAll("main pre").forEach((box) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.dataset.label = button.textContent = "Copy";
    button.addEventListener("click", () => copied(button, box.textContent));
    const frame = document.createElement("div");
    frame.className = "copyable";
    box.replaceWith(frame);
    frame.append(box, button);
  });

  // A link to a message is also copied.
  document.querySelectorAll("a.here").forEach((link) => {
    link.dataset.label = link.textContent;
    link.addEventListener("click", () => copied(link, link.href));
  });

  // Keys: / searches, o opens or folds, t toggles the theme, j and k move between messages.
  const walkEntries = (step) => {
    const entries = [...story.querySelectorAll(".entry")].filter((one) => one.checkVisibility?.() ?? true);
    const top = (one) => one.getBoundingClientRect().top - 80;
    const next = step > 0 ? entries.find((one) => top(one) > 4) : entries.findLast((one) => top(one) < -4);
    next?.scrollIntoView({ block: "start" });
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === input) return;
    const act = { "/": () => input.focus(), o: foldAll, t: theme, j: () => walkEntries(1), k: () => walkEntries(-1) }[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  // The chart shows its numbers immediately, also on keyboard focus.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  document.querySelectorAll(".plot a").forEach((bar) => {
    const title = bar.querySelector("title");
    const text = title.textContent;
    title.remove();
    bar.setAttribute("aria-label", text);
    const show = () => {
      const box = bar.getBoundingClientRect();
      tip.textContent = text;
      tip.hidden = false;
      const left = box.left + box.width / 2 - tip.offsetWidth / 2;
      tip.style.left = `${Math.max(8, Math.min(left, innerWidth - tip.offsetWidth - 8))}px`;
      tip.style.top = `${Math.max(8, box.top - tip.offsetHeight - 6)}px`;
    };
    const hide = () => { tip.hidden = true; };
    bar.addEventListener("pointerenter", show);
    bar.addEventListener("focus", show);
    bar.addEventListener("pointerleave", hide);
    bar.addEventListener("blur", hide);
  });

  // Marks the current prompt in the list of prompts.
  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver((seen) => {
    const here = seen.filter((one) => one.isIntersecting).pop();
    if (!here) return;
    links.forEach((link) => link.classList.remove("now"));
    links.get(here.target.id)?.classList.add("now");
  }, { rootMargin: "-10% 0px -60% 0px" });
  links.forEach((_, id) => watch.observe(byId(id)));

  // A URL fragment can name a message, or with #q=word a search.
  const arrive = () => {
    const hash = decodeURIComponent(location.hash.slice(1));
    if (hash.startsWith("q=")) {
      input.value = hash.slice(2);
      search();
    } else {
      const target = hash && byId(hash);
      if (target?.tagName === "DETAILS") target.open = true;
      if (target) { reveal(target); (target.closest(".here")?.closest(".entry") ?? target).scrollIntoView(); }
    }
  };
  addEventListener("hashchange", arrive);
  arrive();
})();

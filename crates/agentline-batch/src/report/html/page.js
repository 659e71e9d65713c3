(() => {
  "use strict";
  const { runs, links } = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const page = 200;
  const repeats = runs.some((run) => run.attempt > 0);
  for (const id of [...new Set(runs.map((run) => run.variant))]) {
    const option = element("option", "", id);
    option.value = id;
    find("variant").append(option);
  }
  const haystack = new Map();
  const text = (run) => {
    if (!haystack.has(run)) haystack.set(run, JSON.stringify(run).toLowerCase());
    return haystack.get(run);
  };
  const fill = (run, body) => {
    const facts = [run.verdict, `${(run.ms / 1000).toFixed(1)} s`, `${run.turns} ${run.turns === 1 ? "turn" : "turns"}`];
    if (run.tokens !== null) facts.push(`${run.tokens} tokens`);
    if (run.cost !== null) facts.push(`$${run.cost}`);
    if (run.judges !== null) facts.push(`judges $${run.judges}`);
    if (run.tries > 1) facts.push(`try ${run.tries}`);
    const meta = element("p", "meta", facts.join(" · ") + " · ");
    if (links[run.variant]) {
      const link = element("a", "", run.dir);
      link.href = links[run.variant] + run.dir + "/";
      meta.append(link);
    } else {
      meta.append(run.dir);
    }
    body.append(meta);
    if (run.message) body.append(element("p", "check failed", run.message));
    for (const check of run.checks) {
      const sign = check.passed ? "✓" : "✗";
      const line = `${sign} ${check.check}${check.detail ? ": " + check.detail : ""}`;
      body.append(element("div", `check ${check.passed ? "passed" : "failed"}`, line));
    }
    if (!run.detail) {
      body.append(element("p", "meta", "The answer and the changes are in the run's directory."));
      return;
    }
    if (run.detail.prompt) {
      body.append(element("p", "meta", "Prompt"), element("pre", "", run.detail.prompt), element("p", "meta", "Answer"));
    }
    if (run.detail.text) body.append(element("pre", "", run.detail.text));
    if (run.detail.messages.length > 0) {
      const all = element("details", "messages");
      all.append(element("summary", "", `Messages (${run.detail.messages.length})`));
      for (const message of run.detail.messages) {
        all.append(element("p", "meta", message.by), element("pre", "", message.text));
      }
      body.append(all);
    }
    for (const file of run.detail.files) {
      body.append(element("p", "meta", `${file.path} (${file.change})`));
      if (file.diff) body.append(element("pre", "", file.diff));
    }
  };
  const row = (run) => {
    const details = element("details", "run");
    const summary = element("summary");
    summary.append(element("span", `tag ${run.class}`, run.class));
    const attempt = repeats ? ` · attempt ${run.attempt + 1}` : "";
    summary.append(`${run.case} · ${run.variant}${attempt}`);
    const failed = run.checks.find((check) => !check.passed);
    const reason = run.message || (failed && `${failed.check}${failed.detail ? ": " + failed.detail : ""}`);
    if (reason && run.class !== "passed") summary.append(element("div", "meta", reason.slice(0, 200)));
    const body = element("div");
    details.append(summary, body);
    details.addEventListener("toggle", () => {
      if (details.open && !body.firstChild) fill(run, body);
    });
    return details;
  };
  let shown = [];
  let count = 0;
  const more = () => {
    const part = shown.slice(count, count + page);
    count += part.length;
    find("list").append(...part.map(row));
    find("more").hidden = count >= shown.length;
  };
  const show = () => {
    const words = find("search").value.toLowerCase();
    const variant = find("variant").value;
    const chosen = find("class").value;
    shown = runs.filter((run) => (!variant || run.variant === variant) && (!chosen || run.class === chosen)
      && (!words || text(run).includes(words)));
    count = 0;
    find("list").replaceChildren();
    find("count").textContent = `${shown.length} of ${runs.length} runs`;
    more();
  };
  let waiting = 0;
  find("search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(show, 150);
  });
  find("variant").addEventListener("change", show);
  find("class").addEventListener("change", show);
  find("more").addEventListener("click", more);
  show();
})();

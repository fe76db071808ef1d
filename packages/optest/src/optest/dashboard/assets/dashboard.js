// The page: runs, views, and what does not need a file of its own.
"use strict";

(() => {
  const { h, byId, load, prepare, runName, state, charts, view } = optest;
  const TABS = ["map", "failures", "distributions", "trend", "stages"];
  const POLL_MS = 15000;
  const MACHINE = ["cpu", "cpus", "platform"];
  const drawn = new Map();

  function tell(error) {
    byId("problem").textContent = error.message;
    byId("problem").hidden = false;
  }

  async function overviewOf(key) {
    return key ? { ...prepare(await load(`${key}/overview`)), key } : null;
  }

  async function chooseRuns() {
    try {
      [state.a, state.b] = await Promise.all([overviewOf(byId("run-a").value), overviewOf(byId("run-b").value)]);
    } catch (error) {
      tell(error);
      return;
    }
    byId("problem").hidden = true;
    const counts = {};
    for (const cell of state.a.cells) optest.addCounts(counts, cell[3]);
    const found = optest.judge(counts);
    const told = [runA(), runB()].filter(Boolean).flatMap((run) => run.unfinished);
    byId("warning").textContent = [...new Set(told), differing()].filter(Boolean).join("; ");
    byId("summary").textContent = `${found.total.toLocaleString("en")} cases of ${state.a.operators.length} operators: ${optest.words(counts)}`;
    byId("backend").textContent = runA().target;
    drawn.clear();
    view.map.fill();
    show(current());
  }

  /** What two runs beside each other were recorded with, where it is not the same. */
  function differing() {
    const other = runB();
    if (!other) return "";
    const facts = (run) => ({ ...run.environment, optest: run.version });
    const [a, b] = [facts(runA()), facts(other)];
    const names = Object.keys(a).filter((name) => !MACHINE.includes(name) && name in b && a[name] !== b[name]);
    return names.length ? `Recorded with different versions: ${names.map((name) => `${name} ${a[name]} and ${b[name]}`).join(", ")}` : "";
  }

  const runA = () => state.index.runs.find((one) => one.key === state.a.key);
  const runB = () => state.b && state.index.runs.find((one) => one.key === state.b.key);
  const current = () => TABS.find((name) => byId(`tab-${name}`).getAttribute("aria-selected") === "true");

  async function show(name) {
    for (const one of TABS) {
      const chosen = one === name;
      byId(`tab-${one}`).setAttribute("aria-selected", chosen);
      byId(`tab-${one}`).tabIndex = chosen ? 0 : -1;
      byId(`view-${one}`).hidden = !chosen;
    }
    if (!VIEWS[name] || drawn.get(name)) return;
    drawn.set(name, true);
    const panel = byId(`view-${name}`);
    try {
      panel.replaceChildren(...await VIEWS[name]());
    } catch (error) {
      drawn.delete(name);
      panel.replaceChildren(h("p", { role: "alert" }, error.message));
    }
  }

  async function failures() {
    const data = await load(`${state.a.key}/failures`);
    const find = h("input", { type: "search", placeholder: "operator, reason, case id" });
    const body = h("tbody");
    const told = h("span", { class: "quiet", role: "status" });
    const draw = () => {
      const wanted = find.value.trim().toLowerCase();
      const found = data.failures.filter((row) => !wanted || row.some((cell) => cell.toLowerCase().includes(wanted)));
      told.textContent = `${found.length} of ${data.count} failures` + (found.length > 500 ? "; the first 500 are shown" : "");
      body.replaceChildren(...found.slice(0, 500).map(([op, dtype, phase, status, id, reason]) => h("tr", {},
        h("td", {}, h("button", { class: "link", type: "button", click: () => view.detail(op, { dtype, phase }, id) }, op)),
        h("td", {}, dtype), h("td", {}, phase), h("td", { class: "status" }, status.replace("_", " ")), h("td", {}, reason))));
    };
    find.addEventListener("input", draw);
    draw();
    const head = h("thead", {}, h("tr", {}, ...["operator", "dtype", "phase", "status", "reason"].map((one) => h("th", {}, one))));
    return [h("div", { class: "tools" }, h("label", {}, "Find ", find), told), h("table", { class: "list" }, head, body)];
  }

  async function distributions() {
    const a = await load(`${state.a.key}/distributions`);
    const b = state.b ? await load(`${state.b.key}/distributions`) : null;
    const against = b ? "run beside" : "eager";
    const figures = (kind, unit) => Object.keys(a[kind] || {}).map((dtype) => {
      const second = b ? (b[kind] || {})[dtype] : unit === "ulp" && (a.control_ulp || {})[dtype];
      const series = [{ name: "this run", kind: "a", bins: a[kind][dtype] }];
      if (second) series.push({ name: against, kind: "b", bins: second });
      return charts.histogram(dtype, series, unit);
    });
    return [
      h("p", {}, charts.key("a", "this run"), charts.key("b", against), h("span", { class: "quiet" }, "shares of passing cases")),
      h("h2", {}, "Largest error of a case, in ULP"), h("div", { class: "charts" }, ...figures("ulp", "ulp")),
      h("h2", {}, "Time of a case"), h("div", { class: "charts" }, ...figures("time", "time")),
    ];
  }

  async function trend() {
    const names = [...new Set(state.index.trend.map((one) => one.backend))];
    const place = h("div");
    const list = h("select", {}, h("option", { value: "" }, "all backends"), ...names.map((one) => h("option", { value: one }, one)));
    list.value = runA().target;
    const draw = () => place.replaceChildren(charts.trend(state.index.trend.filter((one) => !list.value || one.backend === list.value)));
    list.addEventListener("change", draw);
    draw();
    return [h("div", { class: "tools" }, h("label", {}, "Runs of ", list)), place];
  }

  const STATE_KINDS = { met: "ok", attested: "ok", missing: "fail3", expired: "fail2", "not applicable": "gap" };

  function checklist(one) {
    const items = one.items.map((item) => h("li", {},
      h("span", { class: `state ${STATE_KINDS[item.state]}` }, item.state), item.text,
      ...item.detail.map((text) => h("div", { class: "quiet" }, text))));
    return h("details", { open: !one.complete }, h("summary", {}, `${one.title}: ${one.summary} (${one.complete ? "complete" : "not complete"})`), h("ul", { class: "items" }, ...items));
  }

  async function stages() {
    const coverage = await load(`coverage/${runA().coverage}`);
    const counts = Object.entries(coverage.counts).map(([level, count]) => `${count} ${level}`).join(", ");
    return [
      h("h2", {}, `${coverage.backend}: ${coverage.stage.name}; target: Stage ${coverage.stage.target}`),
      h("p", {}, `Operators by coverage: ${counts}`),
      ...coverage.warnings.map((text) => h("p", { class: "quiet" }, text)),
      h("h2", {}, "Stages"), ...coverage.stage.stages.map(checklist),
      h("h2", {}, "Readiness"), ...coverage.stage.checklists.map(checklist),
    ];
  }

  const VIEWS = { failures, distributions, trend, stages };

  function startTabs() {
    TABS.forEach((name, place) => {
      byId(`tab-${name}`).addEventListener("click", () => show(name));
      byId(`tab-${name}`).addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = TABS[(place + step + TABS.length) % TABS.length];
        show(next);
        byId(`tab-${next}`).focus();
      });
    });
  }

  /** The theme is the system's until the button is pressed. */
  function startTheme() {
    byId("theme").addEventListener("click", () => {
      const { dataset } = document.documentElement;
      const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      dataset.theme = (dataset.theme || system) === "dark" ? "light" : "dark";
    });
  }

  function poll() {
    setInterval(async () => {
      try {
        const answer = await fetch("api/version");
        if (answer.ok && (await answer.json()).version !== state.index.version) byId("reload").hidden = false;
      } catch { /* the server is away: what is shown stays */ }
    }, POLL_MS);
    byId("reload").addEventListener("click", () => location.reload());
  }

  async function start() {
    startTheme();
    startTabs();
    view.map.start();
    try {
      state.index = await load("index");
    } catch (error) {
      tell(error);
      return;
    }
    const { runs } = state.index;
    if (!runs.length) {
      tell(new Error("The ledger has no run yet. Record one with “optest run”, or send one with “optest publish”."));
      return;
    }
    state.version = state.index.version || "";
    const option = (run) => h("option", { value: run.key }, runName(run));
    const newestFirst = [...runs].reverse();
    byId("run-a").replaceChildren(...newestFirst.map(option));
    byId("run-b").replaceChildren(h("option", { value: "" }, "nothing"), ...newestFirst.map(option));
    for (const id of ["run-a", "run-b"]) byId(id).addEventListener("change", chooseRuns);
    await chooseRuns();
    if (state.index.live) poll();
    document.body.dataset.ready = "yes";
  }

  start();
})();

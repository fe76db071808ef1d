// One operator: its cases, failing ones first, with values and the command that runs each again.
"use strict";

(() => {
  const { h, byId, load, state } = optest;
  const LISTED = 400;

  const isFailure = (one) => state.index.failures.includes(one.status);
  const rank = (one) => (isFailure(one) ? 0 : one.status === "passed" ? 2 : 1);

  function copier(text) {
    const button = h("button", { type: "button", click: async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "copied";
      } catch {
        button.textContent = "select and copy";
      }
    } }, "copy");
    return button;
  }

  const short = (number) => (typeof number === "number" ? Number(number.toPrecision(4)) : number);

  function facts(one, beside) {
    const list = h("dl");
    const add = (name, ...value) => { if (value[0]) list.append(h("dt", {}, name), h("dd", {}, ...value)); };
    add("reason", one.reason && h("pre", {}, one.reason));
    add("values", one.values && h("pre", {}, one.values));
    add("shapes", one.shapes && one.shapes.map(([name, shape]) => `${name} [${shape.join(", ")}]`).join("; "));
    add("dtypes", one.dtypes);
    add("attributes", one.attributes && one.attributes.map(([name, value]) => `${name}=${value}`).join(", "));
    add("origin", one.origin);
    add("error", one.ulp != null && `${short(one.ulp)} ULP` + (one.eager != null ? `; eager's own ${short(one.eager)} ULP` : ""));
    add("time", `${one.us} µs`);
    add("beside", beside && `${beside.status.replace("_", " ")}${beside.reason ? `: ${beside.reason}` : ""}`);
    add("stderr", one.stderr && h("pre", {}, one.stderr));
    add("run again", one.rerun && h("div", { class: "command" }, h("pre", {}, one.rerun), copier(one.rerun)));
    add("case", one.id);
    return list;
  }

  function line(one, beside) {
    const what = [one.dtype, one.phase, one.sample != null && `sample ${one.sample}`].filter(Boolean).join(", ");
    const other = beside && beside.status !== one.status ? ` (beside: ${beside.status.replace("_", " ")})` : "";
    const status = h("span", { class: `cell ${isFailure(one) ? "fail3" : one.status === "passed" ? "ok" : "gap"}` }, one.status.replace("_", " "));
    const found = h("details", { class: isFailure(one) ? "failed" : "" },
      h("summary", {}, status, ` ${what}${other}${one.flaky ? ", flaky" : ""}${one.reason ? `: ${one.reason.split("\n")[0].slice(0, 160)}` : ""}`));
    found.addEventListener("toggle", () => { if (found.open && found.children.length === 1) found.append(facts(one, beside)); });
    return found;
  }

  const power = (value, base) => (value === "inf" || value === "nan" ? 99 : value <= 0 ? -1 : Math.max(0, Math.ceil(Math.log(value) / Math.log(base) - 1e-9)));

  function bins(values, base) {
    const counts = new Map();
    for (const one of values) counts.set(power(one, base), (counts.get(power(one, base)) || 0) + 1);
    return [...counts.entries()].sort((x, y) => x[0] - y[0]);
  }

  function charts(cases) {
    const passed = cases.filter((one) => one.status === "passed");
    const series = [
      { name: "this backend", kind: "a", bins: bins(passed.filter((one) => one.ulp != null).map((one) => one.ulp), 2) },
      { name: "eager", kind: "b", bins: bins(passed.filter((one) => one.eager != null).map((one) => one.eager), 2) },
    ].filter((one) => one.bins.length);
    const found = h("div", { class: "charts" });
    if (series.length) found.append(optest.charts.histogram("Error in ULP", series, "ulp"));
    if (passed.length) {
      const times = bins(passed.map((one) => one.us), 10 ** (1 / 3));
      found.append(optest.charts.histogram("Time", [{ name: "this backend", kind: "a", bins: times }], "time"));
    }
    return found;
  }

  function select(label, name, values, filter, changed) {
    const list = h("select", {}, h("option", { value: "" }, "all"), ...values.map((one) => h("option", { value: one }, one)));
    list.value = values.includes(filter[name]) ? filter[name] : "";
    list.addEventListener("change", () => { filter[name] = list.value; changed(); });
    return h("label", {}, `${label} `, list);
  }

  async function casesOf(run, operator) {
    if (!run || !run.place.has(operator)) return [];
    return (await load(`${run.key}/${run.keys[run.place.get(operator)]}`)).cases;
  }

  /** Says how far an operator is covered, once that is known; it is not waited for. */
  async function tellCoverage(operator, place) {
    const run = state.index.runs.find((one) => one.key === state.a.key);
    const found = new Map((await load(`coverage/${run.coverage}`)).operators).get(operator);
    if (found) place.textContent = `Coverage: ${found[0]}${found[1] ? `. ${found[1]}` : ""}`;
  }

  async function detail(operator, filter = {}, caseId = null) {
    const dialog = byId("detail");
    dialog.replaceChildren(h("div", { class: "bar" }, h("h2", { id: "detail-title" }, operator)), h("p", {}, "Loading…"));
    if (!dialog.open) dialog.showModal();
    let cases, besides;
    try {
      cases = await casesOf(state.a, operator);
      besides = new Map((await casesOf(state.b, operator)).map((one) => [one.id, one]));
    } catch (error) {
      dialog.append(h("p", { role: "alert" }, error.message));
      return;
    }
    const distinct = (name) => [...new Set(cases.map((one) => one[name]))];
    const list = h("div");
    const draw = () => {
      const chosen = cases.filter((one) => ["dtype", "phase", "status"].every((name) => !filter[name] || one[name] === filter[name]));
      chosen.sort((x, y) => rank(x) - rank(y));
      list.replaceChildren(charts(chosen), h("p", { class: "quiet" }, `${chosen.length} cases` + (chosen.length > LISTED ? `; the first ${LISTED} are listed` : "")),
        ...chosen.slice(0, LISTED).map((one) => line(one, besides.get(one.id))));
      const opened = [...list.querySelectorAll("details")][caseId ? chosen.findIndex((one) => one.id === caseId) : 0];
      if (opened && (caseId || opened.classList.contains("failed"))) {
        opened.open = true;
        if (caseId) opened.scrollIntoView();
      }
    };
    const close = h("button", { type: "button", click: () => dialog.close() }, "Close");
    const coverage = h("p", { class: "quiet" });
    tellCoverage(operator, coverage);
    dialog.replaceChildren(
      h("div", { class: "bar" }, h("h2", { id: "detail-title" }, operator),
        select("dtype", "dtype", distinct("dtype"), filter, draw), select("phase", "phase", distinct("phase"), filter, draw),
        select("status", "status", distinct("status"), filter, draw), close),
      coverage,
      list,
    );
    draw();
    close.focus();
  }

  optest.view.detail = detail;
})();

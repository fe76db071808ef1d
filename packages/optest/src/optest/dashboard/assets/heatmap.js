// The heat map: operators against dtypes, or against phases; one run, or two beside each other.
"use strict";

(() => {
  const { h, byId, addCounts, judge, words, state } = optest;
  const FIRST_ROWS = 60, MORE_ROWS = 250;
  let drawing = 0;

  const options = () => ({
    find: byId("find").value.trim().toLowerCase(),
    category: byId("category").value,
    show: byId("show").value,
    columns: byId("columns").value,
    slice: byId("slice").value,
    differences: !byId("differences-label").hidden && byId("differences").checked,
  });

  /** Names of a dimension in either run, in order. */
  function names(dimension) {
    const found = [...state.a[dimension]];
    if (state.b) for (const one of state.b[dimension]) if (!found.includes(one)) found.push(one);
    return found;
  }

  /** Counts of one operator by column. `cell` has positions: 1 the dtype, 2 the phase. */
  function columnsOf(run, operator, chosen) {
    const found = new Map();
    const place = run && run.place.get(operator);
    if (place === undefined || !run) return found;
    const [column, other] = chosen.columns === "dtypes" ? [1, 2] : [2, 1];
    const columnNames = run[chosen.columns];
    const otherNames = run[chosen.columns === "dtypes" ? "phases" : "dtypes"];
    for (const cell of run.byOperator[place]) {
      if (chosen.slice && otherNames[cell[other]] !== chosen.slice) continue;
      const name = columnNames[cell[column]];
      if (!found.has(name)) found.set(name, {});
      addCounts(found.get(name), cell[3]);
    }
    return found;
  }

  function rows(chosen) {
    const found = [];
    const operators = names("operators");
    for (const operator of operators) {
      const run = state.a.place.has(operator) ? state.a : state.b;
      const category = run.categories[run.place.get(operator)];
      if (chosen.category && category !== chosen.category) continue;
      if (chosen.find && !operator.toLowerCase().includes(chosen.find) && !category.toLowerCase().includes(chosen.find)) continue;
      const a = columnsOf(state.a, operator, chosen), b = columnsOf(state.b, operator, chosen);
      const total = {};
      for (const counts of a.values()) addCounts(total, Object.entries(counts).flat().map(Number));
      const kind = judge(total).kind;
      if (chosen.show !== "all" && !kind.startsWith(chosen.show)) continue;
      if (chosen.differences && !differs(a, b)) continue;
      found.push({ operator, category, a, b });
    }
    return found.sort((x, y) => (x.category < y.category ? -1 : x.category > y.category ? 1 : 0));
  }

  function differs(a, b) {
    return [...new Set([...a.keys(), ...b.keys()])].some((name) => different(a.get(name) || {}, b.get(name) || {}));
  }

  const different = (x, y) => JSON.stringify(x) !== JSON.stringify(y);

  function box(counts) {
    const found = judge(counts);
    return h("span", { class: `cell ${found.kind}` }, found.total ? found.text : "–");
  }

  function cellOf(row, column) {
    const a = row.a.get(column), b = row.b.get(column);
    if (!a && !b) return h("td", { class: "none", tabindex: -1, "aria-label": `${row.operator}, ${column}: no result` }, "·");
    const label = `${row.operator}, ${column}: ${words(a || {})}` + (state.b ? `; beside: ${words(b || {})}` : "");
    const boxes = state.b ? h("div", { class: "pair" }, box(a || {}), box(b || {})) : box(a);
    const differs = state.b && different(a || {}, b || {});
    const facts = { tabindex: -1, "aria-label": label, title: label, "data-column": column };
    return h("td", { ...facts, class: differs ? "differs" : null }, boxes);
  }

  function draw() {
    const chosen = options();
    const columns = names(chosen.columns);
    const found = rows(chosen);
    const head = h("tr", {}, h("th", { scope: "col" }, "operator"), ...columns.map((one) => h("th", { scope: "col" }, one)));
    byId("map").tHead.replaceChildren(head);
    const body = byId("map").tBodies[0];
    body.replaceChildren();
    byId("shown").textContent = `${found.length} of ${names("operators").length} operators`;
    const turn = ++drawing;
    let place = 0, category = null;
    (function more() {
      if (turn !== drawing) return;
      const part = document.createDocumentFragment();
      const end = Math.min(found.length, place + (place ? MORE_ROWS : FIRST_ROWS));
      for (; place < end; place++) {
        const row = found[place];
        if (row.category !== category) {
          category = row.category;
          part.append(h("tr", {}, h("th", { class: "group", scope: "rowgroup", colspan: columns.length + 1 }, category)));
        }
        const opener = h("button", { type: "button", tabindex: -1 }, row.operator);
        const line = h("tr", { "data-operator": row.operator }, h("th", { scope: "row" }, opener));
        for (const column of columns) line.append(cellOf(row, column));
        part.append(line);
      }
      body.append(part);
      if (place < found.length) requestAnimationFrame(more);
    })();
    const first = body.querySelector("td");
    if (first) first.tabIndex = 0;
  }

  /** The slices that columns leave: phases for dtypes, dtypes for phases. */
  function fillSlices() {
    const dtypes = byId("columns").value === "dtypes";
    const all = h("option", { value: "" }, dtypes ? "all phases" : "all dtypes");
    byId("slice").replaceChildren(all, ...names(dtypes ? "phases" : "dtypes").map((one) => h("option", { value: one }, one)));
  }

  function fill() {
    const categories = [...new Set(names("categories"))].sort();
    const before = byId("category").value;
    byId("category").replaceChildren(h("option", { value: "" }, "all"), ...categories.map((one) => h("option", { value: one }, one)));
    if (categories.includes(before)) byId("category").value = before;
    fillSlices();
    byId("differences-label").hidden = !state.b;
    draw();
  }

  function open(target) {
    const line = target.closest("tr[data-operator]");
    if (!line) return;
    const cell = target.closest("td");
    const chosen = options();
    const column = cell && cell.dataset.column;
    if (cell && !column) return;
    const filter = {};
    if (column) filter[chosen.columns === "dtypes" ? "dtype" : "phase"] = column;
    if (column && chosen.slice) filter[chosen.columns === "dtypes" ? "phase" : "dtype"] = chosen.slice;
    optest.view.detail(line.dataset.operator, filter);
  }

  const STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

  function move(event) {
    const cell = event.target.closest("td");
    if (!cell) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(cell);
      return;
    }
    let next = null;
    if (STEPS[event.key]) {
      const [down, right] = STEPS[event.key];
      let line = cell.parentElement;
      do line = down > 0 ? line.nextElementSibling : down < 0 ? line.previousElementSibling : line;
      while (down && line && !line.dataset.operator);
      next = line && line.cells[cell.cellIndex + right];
    } else if (event.key === "Home") next = cell.parentElement.cells[1];
    else if (event.key === "End") next = cell.parentElement.lastElementChild;
    if (!next || next.tagName !== "TD") return;
    event.preventDefault();
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  function start() {
    for (const id of ["category", "show", "slice", "differences"]) byId(id).addEventListener("change", draw);
    byId("find").addEventListener("input", draw);
    byId("columns").addEventListener("change", () => { fillSlices(); draw(); });
    byId("map").addEventListener("click", (event) => open(event.target));
    byId("map").addEventListener("keydown", move);
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !event.target.matches("input, select, textarea") && !byId("detail").open) {
        event.preventDefault();
        byId("find").focus();
      }
    });
  }

  optest.view.map = { start, fill };
})();

// A click on a heading sorts its table: numbers by value, everything else by name.
document.addEventListener("click", (event) => {
  const heading = event.target.closest("th");
  if (!heading) return;
  const table = heading.closest("table"), body = table.tBodies[0];
  const column = [...heading.parentNode.children].indexOf(heading);
  const falling = heading.getAttribute("aria-sort") === "ascending";
  const key = (row) => row.cells[column].textContent.trim();
  const order = (a, b) => {
    const [x, y] = [parseFloat(key(a)), parseFloat(key(b))];
    return Number.isNaN(x) || Number.isNaN(y) ? key(a).localeCompare(key(b)) : x - y;
  };
  const rows = [...body.rows].sort((a, b) => (falling ? order(b, a) : order(a, b)));
  for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
  body.append(...rows);
});

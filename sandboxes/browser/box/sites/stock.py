"""A stock room: a table in pages, sorted and filtered by its address, with quantities to set and articles to remove."""

from __future__ import annotations

from html import escape
from urllib.parse import urlencode

from sandboxes.browser.box.web import Page, Redirect, Request, State, field_of, form, link, page, pick, table

__all__ = ["answer"]

_PER_PAGE = 8
_SORTS = ("name", "price", "quantity")


def answer(state: State, request: Request) -> Page | Redirect:
    """Answer one request."""
    items = state["items"]
    match request.path:
        case ():
            return _list(state, request)
        case ("item", number) if number.isdecimal() and (found := _item(state, int(number))) is not None:
            return _show(found, request.query.get("note", ""))
        case ("item", number, act) if number.isdecimal() and (found := _item(state, int(number))) is not None:
            if request.method == "POST" and act == "delete":
                items.remove(found)
                return Redirect("/")
            if request.method == "POST" and act == "save":
                return _save(found, request)
        case ("order",) if request.method == "POST":
            wanted = sorted(int(each) for each in request.form.get("item", []) if each.isdecimal())
            state["orders"].append([number for number in wanted if _item(state, number) is not None])
            return page(
                "Ordered", f"<p>{len(wanted)} articles are on order.</p>", link("Back to the stock", "/")
            )
    return page("Not found", link("Back to the stock", "/"), status=404)


def _item(state: State, number: int) -> State | None:
    return next((item for item in state["items"] if item["id"] == number), None)


def _list(state: State, request: Request) -> Page:
    query = request.query
    group, sort = query.get("group", "all"), query.get("sort", "name")
    sort = sort if sort in _SORTS else "name"
    chosen = [item for item in state["items"] if group in ("all", item["group"])]
    chosen.sort(key=lambda item: (item[sort], item["name"]))
    number = int(query["page"]) if query.get("page", "").isdecimal() else 1
    last = max(1, -(-len(chosen) // _PER_PAGE))
    number = min(max(number, 1), last)
    rows = [
        [
            f'<input type="checkbox" name="item" value="{item["id"]}" aria-label="select {escape(item["name"])}">',
            link(item["name"], f"/item/{item['id']}"),
            escape(item["group"]),
            f"{item['price'] / 100:.2f}",
            str(item["quantity"]),
        ]
        for item in chosen[(number - 1) * _PER_PAGE : number * _PER_PAGE]
    ]
    heads = ["", *(link(each.title(), "/", group=group, sort=each) for each in ("name",)), "Group"]
    heads += [link(each.title(), "/", group=group, sort=each) for each in ("price", "quantity")]
    groups = ["all", *sorted({item["group"] for item in state["items"]})]
    filters = form("/", pick("Group", "group", groups, group), send="Show", method="get")
    shown = form("/order", table(heads, rows), send="Order selected")
    return page(
        "Stock", filters, shown, f"<p>Page {number} of {last}. {_pages(group, sort, number, last)}</p>"
    )


def _pages(group: str, sort: str, number: int, last: int) -> str:
    def to(text: str, which: int) -> str:
        asked = urlencode({"group": group, "sort": sort, "page": which})
        return f'<a href="/?{escape(asked, quote=True)}">{text}</a>'

    before = to("Previous page", number - 1) if number > 1 else ""
    after = to("Next page", number + 1) if number < last else ""
    return f"{before} {after}"


def _show(item: State, note: str) -> Page:
    number = item["id"]
    save = form(
        f"/item/{number}/save",
        field_of("Quantity", "quantity", str(item["quantity"])),
        field_of("Price", "price", f"{item['price'] / 100:.2f}"),
        send="Save",
    )
    delete = form(f"/item/{number}/delete", send="Delete article", confirm="Really delete this article?")
    about = f"<p>Group: {escape(item['group'])}. Supplier: {escape(item['supplier'])}.</p>"
    return page(item["name"], about, save, delete, link("Back to the stock", "/"), note=note)


def _save(item: State, request: Request) -> Page | Redirect:
    quantity, price = request.text("quantity"), request.text("price")
    whole, _, cents = price.partition(".")
    if not quantity.isdecimal() or not whole.isdecimal() or not (cents.isdecimal() and len(cents) == 2):
        return _show(item, "A quantity is a whole number, a price has two decimals.")
    item["quantity"], item["price"] = int(quantity[:9]), int(whole[:9]) * 100 + int(cents)
    return Redirect(f"/item/{item['id']}?note=Saved.")

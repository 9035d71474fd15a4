"""A bakery that delivers: its products, its customers, and what they ordered."""

from datetime import date
from random import Random

from .schemas import PEOPLE, Question, Schema, Tables, Words, some_day

__all__ = ["BAKERY"]

DDL = """\
CREATE TABLE products (
    product_id INTEGER PRIMARY KEY,
    product TEXT NOT NULL,
    kind TEXT NOT NULL, -- 'bread', 'roll' or 'cake'
    cents INTEGER NOT NULL -- the price of one
);
CREATE TABLE customers (
    customer_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    district TEXT NOT NULL
);
CREATE TABLE orders (
    order_id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (customer_id),
    ordered_on TEXT NOT NULL, -- YYYY-MM-DD
    delivered INTEGER NOT NULL -- 1 or 0
);
CREATE TABLE order_lines (
    order_id INTEGER NOT NULL REFERENCES orders (order_id),
    product_id INTEGER NOT NULL REFERENCES products (product_id),
    quantity INTEGER NOT NULL,
    PRIMARY KEY (order_id, product_id)
);"""

PRODUCTS = {
    "bread": ("rye loaf", "farmhouse loaf", "walnut loaf", "spelt loaf", "tin loaf"),
    "roll": ("poppy roll", "cheese roll", "plain roll", "pretzel roll"),
    "cake": ("plum cake", "almond slice", "carrot cake", "cheesecake", "apple strudel"),
}
CENTS = {"bread": (320, 690), "roll": (60, 180), "cake": (240, 560)}
DISTRICTS = ("Old Town", "Riverside", "Mill Hill", "Station Quarter")


def _filled(rng: Random) -> Tables:
    products = [
        (product, kind, rng.randrange(*CENTS[kind], 10))
        for kind, names in PRODUCTS.items()
        for product in rng.sample(names, 3)
    ]
    names = rng.sample(PEOPLE, 9)
    orders = [
        (number, rng.randint(1, 8), some_day(rng, date(2025, 2, 1), 56), int(rng.random() < 0.7))
        for number in range(1, 19)
    ]
    lines = [
        (order[0], product, rng.randint(1, 12))
        for order in orders
        for product in sorted(rng.sample(range(1, 9), rng.randint(1, 3)))
    ]
    return {
        "products": [(number, *rest) for number, rest in enumerate(products, start=1)],
        "customers": [
            (number, name, rng.choice(DISTRICTS)) for number, name in enumerate(names, 1)
        ],
        "orders": orders,
        "order_lines": lines,
    }


def _chosen(rng: Random, tables: Tables) -> Words:
    return {
        "kind": rng.choice(list(PRODUCTS)),
        "product": str(rng.choice(tables["products"])[1]),
        "customer": str(tables["customers"][rng.randrange(8)][1]),
        "district": rng.choice(DISTRICTS),
        "day": some_day(rng, date(2025, 2, 14), 36),
        "cents": rng.randrange(110, 520, 10),
        "num": rng.randint(3, 9),
        "total": rng.randint(10, 30),
    }


BAKERY = Schema(
    "bakery",
    "a bakery",
    DDL,
    _filled,
    _chosen,
    (
        Question(
            "easy",
            "Which products cost less than {cents} cents? Give product and price.",
            "SELECT product, cents FROM products WHERE cents < {cents}",
        ),
        Question(
            "easy",
            "Which customers live in the district {district}? Give their names.",
            "SELECT name FROM customers WHERE district = '{district}'",
        ),
        Question(
            "easy",
            "How many cents do all products of the kind {kind} cost together, one of each?",
            "SELECT SUM(cents) FROM products WHERE kind = '{kind}'",
        ),
        Question(
            "easy",
            "Give the number and the day of every order from before {day} that has not been "
            "delivered.",
            "SELECT order_id, ordered_on FROM orders WHERE delivered = 0 AND ordered_on < '{day}'",
        ),
        Question(
            "medium",
            "How many pieces of each product did customers from {district} order? Give the product "
            "and the pieces, without products that they did not order.",
            "SELECT product, SUM(quantity) FROM order_lines JOIN products USING (product_id) "
            "JOIN orders USING (order_id) JOIN customers USING (customer_id) "
            "WHERE district = '{district}' GROUP BY product_id",
        ),
        Question(
            "medium",
            "What does each order of {customer} cost? Give the order's number and the cents.",
            "SELECT order_id, SUM(quantity * cents) FROM order_lines "
            "JOIN products USING (product_id) JOIN orders USING (order_id) "
            "JOIN customers USING (customer_id) WHERE name = '{customer}' GROUP BY order_id",
        ),
        Question(
            "medium",
            "Who ordered at least {num} pieces of one product in a single order? Give the "
            "customer's name and the product.",
            "SELECT DISTINCT name, product FROM order_lines JOIN products USING (product_id) "
            "JOIN orders USING (order_id) JOIN customers USING (customer_id) "
            "WHERE quantity >= {num}",
        ),
        Question(
            "medium",
            "Which products were ordered more than {total} times, counting every piece? Give the "
            "product and the pieces.",
            "SELECT product, SUM(quantity) FROM order_lines JOIN products USING (product_id) "
            "GROUP BY product_id HAVING SUM(quantity) > {total}",
        ),
        Question(
            "hard",
            "Which customers have never ordered anything of the kind {kind}? Give name and "
            "district; customers without any order count too.",
            "SELECT name, district FROM customers AS customer WHERE NOT EXISTS (SELECT 1 "
            "FROM orders JOIN order_lines USING (order_id) JOIN products USING (product_id) "
            "WHERE orders.customer_id = customer.customer_id AND kind = '{kind}')",
        ),
        Question(
            "hard",
            "Which orders from {day} or later cost more than the average order in all, the average "
            "being taken over all orders of any day? Give the order's number and its cents.",
            "WITH sums AS (SELECT order_id, ordered_on, SUM(quantity * cents) AS cost "
            "FROM order_lines JOIN products USING (product_id) JOIN orders USING (order_id) "
            "GROUP BY order_id) SELECT order_id, cost FROM sums "
            "WHERE ordered_on >= '{day}' AND cost > (SELECT AVG(cost) FROM sums)",
        ),
        Question(
            "hard",
            "For each district, how many pieces of the kind {kind} and how many pieces of all "
            "other kinds were ordered? Give the district and the two numbers, 0 where there were "
            "none, and leave out districts without any order.",
            "SELECT district, SUM(CASE WHEN kind = '{kind}' THEN quantity ELSE 0 END), "
            "SUM(CASE WHEN kind <> '{kind}' THEN quantity ELSE 0 END) FROM order_lines "
            "JOIN products USING (product_id) JOIN orders USING (order_id) "
            "JOIN customers USING (customer_id) GROUP BY district",
        ),
        Question(
            "hard",
            "Which products stand in an order together with the {product}? Give the product and "
            "the number of orders that hold both.",
            "SELECT other.product, COUNT(*) FROM order_lines AS line JOIN products "
            "USING (product_id) JOIN order_lines AS pair ON pair.order_id = line.order_id "
            "AND pair.product_id <> line.product_id JOIN products AS other "
            "ON other.product_id = pair.product_id WHERE products.product = '{product}' "
            "GROUP BY other.product_id",
        ),
    ),
)

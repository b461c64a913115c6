"""Finding tools by words: what is found, in which order, and that a query is only words."""

from __future__ import annotations

import gc
import sqlite3
import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.catalog import Catalog
from callpact.discovery import ToolIndex
from callpact.discovery.index import (
    MAX_LIMIT,
    MAX_LINE_LENGTH,
    MAX_QUERY_LENGTH,
    MAX_QUERY_WORDS,
    MAX_REQUIRED,
    MAX_TEXT_LENGTH,
    MIN_WEIGHED,
    make_table,
    query_words,
)
from callpact.errors import UsageError
from callpact.tool import Contract, Tool


async def _handler(arguments, context):
    return None


def _tool(id, description="", input=None, **fields):
    contract = Contract() if input is None else Contract(input=input)
    return Tool(id=id, description=description, contract=contract, handler=_handler, **fields)


def _ids(index, query, **options):
    return [hit.id for hit in index.search(query, **options).hits]


def _found(query, *tools, **options):
    return _ids(ToolIndex(Catalog(tools)), query, **options)


# --- what is looked at ----------------------------------------------------------------------

OTHER = _tool("other.thing", "Something else.")


@pytest.mark.parametrize(
    "tool",
    [
        _tool("dex.tokenPrice"),
        _tool("dex.a", title="Token price"),
        _tool("token.price"),
        _tool("dex.a", "The price of a token."),
        _tool("dex.a", tags=["token", "price"]),
        _tool("dex.a", input={"properties": {"tokenPrice": {"type": "number"}}}),
        _tool("dex.a", input={"properties": {"x": {"description": "Price of the token"}}}),
        _tool("dex.a", input={"properties": {"x": {"title": "Token price"}}}),
        _tool(
            "dex.a",
            input={"$ref": "#/$defs/o", "$defs": {"o": {"properties": {"token": {}, "price": {}}}}},
        ),
        _tool(
            "dex.a",
            input={"properties": {"o": {"anyOf": [{"properties": {"token": {}, "price": {}}}]}}},
        ),
        _tool("dex.a", input={"properties": {"o": {"items": {"properties": {"token_price": {}}}}}}),
    ],
    ids=lambda tool: f"{tool.id} {tool.title} {tool.tags} {tool.contract.input}"[:60],
)
def test_names_titles_namespaces_descriptions_tags_and_parameters_are_searched(tool):
    assert _found("token price", OTHER, tool) == [tool.id]


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("getTokenPrice", "token price"),
        ("getTokenPrice", "TOKEN-PRICE"),
        ("getTokenPrice", "gettokenprice"),
        ("getTokenPrice", "getTokenPrice"),
        ("get_token_price", "token price"),
        ("get-token-price", "tokenPrice"),
        ("GETTokenPRICE", "token"),
        ("getNFTsByOwner", "nft"),
        ("listGitHubRepos", "github"),
        ("listGitHubRepos", "GitHub"),
        ("chat_open_ai", "openai"),
        ("listGitHubRepos", "list_github_repos"),
        ("base64Encode", "base 64"),
        ("base64Encode", "base64"),
        ("encodeBase64", "base"),
        ("HTTPServerStatus", "server"),
        ("HTTPServerStatus", "http"),
        ("erc20Balance", "erc20"),
        ("quote2024Report", "2024"),
    ],
)
def test_words_are_split_where_case_underscores_and_digits_split_them(name, query):
    assert _found(query, OTHER, _tool(f"ns.{name}")) == [f"ns.{name}"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Lists invoices", "invoice listing"),
        ("Convert currencies", "currency conversion"),
        ("Café à la carte", "cafe"),
        ("Cafe", "CAFÉ"),
        ("Übersetzt Texte", "ubersetzt"),
        ("查询天气预报接口", "天气"),
        ("Погода сегодня", "погода"),
        ("Ofﬁce hours", "office"),
    ],
)
def test_inflections_case_accents_and_other_scripts_do_not_hide_a_tool(text, query):
    assert _found(query, OTHER, _tool("ns.a", text)) == ["ns.a"]


def test_the_last_word_may_be_a_beginning_and_the_others_may_not():
    weather = _tool("sky.weatherForecast")
    assert _found("fore", OTHER, weather) == ["sky.weatherForecast"]
    assert _found("weather forec", OTHER, weather) == ["sky.weatherForecast"]
    assert _found("forec nothing", OTHER, weather) == []
    assert _found("fo", OTHER, weather) == []


def test_a_whole_word_comes_before_words_that_only_begin_with_it():
    tools = [_tool("a.category"), _tool("b.catalogue"), _tool("z.facts", "Facts about a cat.")]
    assert _found("cat", *tools) == ["z.facts", "a.category", "b.catalogue"]


def test_a_name_weighs_more_than_a_description_and_that_more_than_a_parameter():
    tools = [
        _tool("a.one", "Nothing of it.", {"properties": {"weather": {}}}),
        _tool("b.two", "Nothing but weather."),
        _tool("c.weather", "Nothing of it."),
    ]
    assert _found("weather", *tools) == ["c.weather", "b.two", "a.one"]


def test_more_of_the_words_weigh_more_than_one_of_them():
    tools = [_tool("a.price"), _tool("b.token"), _tool("c.tokenPrice"), OTHER]
    assert _found("token price", *tools)[0] == "c.tokenPrice"


@pytest.mark.parametrize("name", ["shop.find", "shop_find", "old-name", " shop.find "])
def test_a_tool_comes_first_for_its_own_name(name):
    tools = [
        _tool("a.shop", "Find the shop shop_find find old name old name."),
        _tool("shop.find", aliases=["old-name"]),
    ]
    assert _found(name, *tools)[0] == "shop.find"
    assert _found(name, *tools, visible={"a.shop"}) == ["a.shop"]


def test_words_that_say_nothing_are_left_out_unless_there_are_no_others():
    tools = [_tool("a.b", "What is this?"), _tool("c.d", "The weather.")]
    assert _found("what is the weather", *tools) == ["c.d"]
    assert _found("what is this", *tools) == ["a.b"]


def test_in_a_big_catalog_a_word_that_most_tools_hold_is_left_out_beside_rarer_ones():
    many = [_tool(f"bulk.get{n:05}") for n in range(MIN_WEIGHED)]
    index = ToolIndex(Catalog([*many, _tool("sky.getWeather")]))
    assert _ids(index, "get weather") == ["sky.getWeather"]
    assert index.search("get").total == MIN_WEIGHED + 1
    small = ToolIndex(Catalog([*many[:10], _tool("sky.getWeather")]))
    assert small.search("get weather").total == 11


# --- pages ----------------------------------------------------------------------------------

MANY = Catalog(
    _tool(f"ns{n % 3}.item{n:02}", "An item.", tags=["odd", "one"] if n % 2 else ["even", "all"])
    for n in reversed(range(25))
)


def test_equal_ranks_stand_in_the_order_of_ids_on_every_search_and_page():
    index = ToolIndex(MANY)
    expected = sorted(tool.id for tool in MANY)
    read = []
    offset = 0
    while offset is not None:
        page = index.search("item", 10, offset)
        assert page.total == 25
        read += [hit.id for hit in page.hits]
        offset = page.next
    assert read == expected
    assert _ids(ToolIndex(Catalog(sorted(MANY, key=lambda t: t.id))), "item", limit=25) == expected


@pytest.mark.parametrize(
    ("limit", "offset", "count", "next"),
    [(10, 0, 10, 10), (10, 20, 5, None), (5, 20, 5, None), (25, 0, 25, None), (5, 99, 0, None)],
)
def test_a_page_knows_how_many_there_are_and_where_the_next_begins(limit, offset, count, next):
    page = ToolIndex(MANY).search("items", limit, offset)
    assert (len(page.hits), page.total, page.next) == (count, 25, next)


@pytest.mark.parametrize("query", ["", "  ", "???", '"', "_-_"])
def test_a_query_without_a_word_lists_everything_by_id(query):
    index = ToolIndex(MANY)
    assert _ids(index, query, limit=25) == sorted(tool.id for tool in MANY)
    assert index.search(query, namespace="ns1").total == 8


def test_namespaces_tags_and_what_is_visible_narrow_hits_and_totals():
    index = ToolIndex(MANY)
    assert index.search("item", namespace="ns0").total == 9
    assert index.search("item", namespace="ns").total == 0
    assert index.search("item", tags=["odd"]).total == 12
    assert index.search("item", tags=["even", "all"]).total == 13
    assert index.search("item", tags=["even", "odd"]).total == 0
    assert index.search("item", visible={"ns1.item01", "no.such"}).total == 1
    assert index.search("item", visible=lambda tool: tool.namespace != "ns0").total == 16
    assert index.search("item", visible=()).total == 0


@pytest.mark.parametrize(
    "options", [{"limit": 0}, {"limit": -1}, {"limit": MAX_LIMIT + 1}, {"offset": -1}]
)
def test_a_page_that_cannot_be_is_refused(options):
    with pytest.raises(UsageError, match=r"(limit|offset) must be"):
        ToolIndex(MANY).search("item", **options)


def test_an_empty_catalog_has_nothing_to_find():
    page = ToolIndex(Catalog()).search("weather")
    assert (page.hits, page.total, page.next) == ((), 0, None)


# --- hits -----------------------------------------------------------------------------------


def test_a_hit_tells_both_names_the_title_and_what_a_call_must_give():
    tool = _tool(
        "sky.File.weather",
        "Tomorrow's weather. In detail.",
        {"properties": {"city": {}, "day": {}}, "required": ["city"]},
        title="Weather",
        wire_name="weather_sky",
    )
    [hit] = ToolIndex(Catalog([tool])).search("weather").hits
    assert (hit.id, hit.wire_name, hit.title) == ("sky.File.weather", "weather_sky", "Weather")
    assert (hit.description, hit.required) == ("Tomorrow's weather.", ("city",))


@pytest.mark.parametrize(
    ("description", "line"),
    [
        ("", ""),
        ("No end", "No end"),
        ("One. Two.", "One."),
        ("Really? Yes! No.", "Really?"),
        ("Takes e.g. a city. And more.", "Takes e.g. a city."),
        ("Version 2.1 of it. More.", "Version 2.1 of it."),
        ("  Two\n  lines of it. Third.", "Two lines of it."),
        ("Heading\n\nThen text.", "Heading"),
        ("Ends. 3 more.", "Ends."),
    ],
)
def test_a_hit_shows_the_first_sentence_on_one_line(description, line):
    [hit] = ToolIndex(Catalog([_tool("a.b", description)])).search("").hits
    assert hit.description == line


@pytest.mark.parametrize("description", ["word " * 5_000, "w" * 100_000, "a. b. " * 9_000])
def test_a_long_sentence_is_cut_and_says_so(description):
    [hit] = ToolIndex(Catalog([_tool("a.b", description)])).search("").hits
    assert len(hit.description) <= MAX_LINE_LENGTH
    assert hit.description.endswith("…")
    assert not hit.description.endswith(" …")


@pytest.mark.parametrize("input", [True, {}, {"required": []}, {"type": "object"}])
def test_a_tool_that_asks_for_nothing_requires_nothing(input):
    [hit] = ToolIndex(Catalog([_tool("a.b", input=input)])).search("").hits
    assert hit.required == ()


def test_a_tool_with_hundreds_of_required_parameters_shows_the_first():
    names = [f"p{n}" for n in range(500)]
    [hit] = ToolIndex(Catalog([_tool("a.b", input={"required": names})])).search("").hits
    assert hit.required == tuple(names[:MAX_REQUIRED])


# --- hostile text ---------------------------------------------------------------------------

SHOP = Catalog([_tool("shop.search", "Near tea shops."), _tool("shop.order"), _tool("sky.weather")])
SHOP_INDEX = ToolIndex(SHOP)


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "tea OR weather*",
        "name:weather",
        "{name title}: weather",
        "-weather",
        "^weather",
        "NEAR(weather tea, 5)",
        "weather AND nothing",
        "weather NOT weather",
        "weather' ; DROP TABLE tools; --",
        'weather" OR "tea',
        "weather\0tea",
        "weather \ud800",
        "(((weather",
        "weather" + "*" * 5000,
        "rank MATCH weather",
    ],
)
def test_no_operator_of_the_index_can_be_reached_from_a_query(query):
    before = SHOP_INDEX.search("").total
    ids = _ids(SHOP_INDEX, query)
    if "weather" in query:
        assert "sky.weather" in ids
    assert SHOP_INDEX.search("").total == before == 3


def test_near_not_and_or_are_words_like_others():
    assert _ids(SHOP_INDEX, "NEAR") == ["shop.search"]
    assert _ids(SHOP_INDEX, "NOT") == []


@given(st.text(max_size=80))
def test_every_text_is_a_query_with_an_answer(query):
    page = SHOP_INDEX.search(query)
    assert 0 <= page.total <= 3
    assert page == SHOP_INDEX.search(query)


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=60))
def test_every_text_can_describe_a_tool_that_is_then_found_by_its_name(text):
    key = text.encode("utf-8", "replace").decode()  # A schema with half a character is refused.
    tool = _tool("ns.findable", text, {"properties": {key: {"description": text}}}, title=text)
    assert _found("findable", OTHER, tool) == ["ns.findable"]


def test_the_words_of_a_query_are_bounded_in_number_and_length():
    words = query_words(" ".join(f"w{n}x" for n in range(10_000)))
    assert len(words) == MAX_QUERY_WORDS
    assert max(map(len, query_words("x" * 1_000_000))) < MAX_QUERY_LENGTH
    assert query_words("x " * MAX_QUERY_LENGTH + "weather") == ["x"]
    assert query_words("tea tea TEA Tea") == ["tea"]


def test_a_description_of_megabytes_is_indexed_from_its_beginning_only():
    long = _tool("a.long", "early " + "filler " * MAX_TEXT_LENGTH + "late")
    assert _found("early", long) == ["a.long"]
    assert _found("late", long) == []


def test_an_input_schema_that_refers_to_itself_is_indexed_once():
    schema = {"properties": {"child": {"$ref": "#"}, "leaf": {"description": "green"}}}
    assert _found("green", OTHER, _tool("tree.grow", input=schema)) == ["tree.grow"]


# --- the index itself -----------------------------------------------------------------------


def test_contracts_are_not_made_before_the_first_search_and_once_by_it():
    made = []

    def make():
        made.append(1)
        return Contract(input={"properties": {"city": {}}})

    contract = Contract.later(make)
    tool = Tool(id="sky.weather", description="", contract=contract, handler=_handler)
    index = ToolIndex(Catalog([tool]))
    assert made == []
    assert _ids(index, "city") == _ids(index, "city") == ["sky.weather"]
    assert made == [1]


def test_threads_that_search_at_once_all_get_the_same_answer():
    index = ToolIndex(MANY)
    start = threading.Barrier(8)
    answers = []

    def search():
        start.wait(10)
        answers.extend(index.search("item", 25) for _ in range(5))

    threads = [threading.Thread(target=search) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 40
    assert all(answer == answers[0] for answer in answers)
    assert answers[0].total == 25


def test_once_it_is_filled_nothing_can_be_written():
    index = ToolIndex(SHOP)
    index.search("tea")
    with pytest.raises(sqlite3.OperationalError):
        index._connection.execute("INSERT INTO tools(rowid, name) VALUES (99, 'x')")


def test_an_index_that_nobody_holds_closes_its_connection():
    index = ToolIndex(SHOP)
    connection, gone = index._connection, weakref.ref(index)
    del index
    gc.collect()
    assert gone() is None
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")


def test_without_fts5_the_error_says_what_is_missing_and_what_to_do():
    class Bare(sqlite3.Connection):
        """As the SQLite of a Python that was built without FTS5."""

        def execute(self, sql, *parameters):
            return super().execute(sql.replace("fts5", "fts_missing"), *parameters)

    connection = sqlite3.connect(":memory:", factory=Bare)
    with pytest.raises(UsageError, match=r"FTS5.*no such module.*list all tools"):
        make_table(connection)
    connection.close()


# --- relevance: questions as people ask them, against some hundred tools -------------------------

_RECORDS = {
    "github": "repository issue pullRequest release branch",
    "jira": "ticket sprint board",
    "stripe": "customer invoice subscription refund",
    "calendar": "event attendee reminder",
    "drive": "file folder permission",
    "slack": "message channel user",
    "shopify": "product order discount",
    "hubspot": "contact deal company",
    "zendesk": "complaint macro agent",
    "kubernetes": "pod deployment secret",
    "aws": "bucket instance queue",
    "hr": "employee absence payslip",
    "mail": "email draft label",
    "notes": "note notebook",
}
_VERBS = {
    "list": "List every {0} of the account, page by page.",
    "get": "Get one {0} by its id, with all of its fields.",
    "create": "Create a new {0} and return its id.",
    "update": "Update some fields of a {0}.",
    "delete": "Delete a {0} for good.",
}
_SINGLE = """
coins.getSimplePrice|Current price of one or more cryptocurrencies in any supported currency.|ids vsCurrencies
coins.getMarketChart|Historical market data of a coin: price, market cap and volume over time.|id days
coins.getTrending|Coins that were searched most in the last 24 hours.|
coins.getExchanges|All crypto exchanges with their trading volume.|perPage
chain.getGasOracle|Gas prices on Ethereum: safe, proposed and fast gas price.|
chain.getAccountBalance|Ether balance of a single address.|address
chain.getContractABI|ABI of a verified smart contract.|address
chain.getTokenHolders|Holders of an ERC-20 token, the largest first.|contractAddress
chain.getNFTsByOwner|All NFTs that a wallet owns.|owner
sky.forecast|Weather forecast for the next seven days at a place.|latitude longitude
sky.currentConditions|Temperature, wind and humidity at a weather station right now.|station
sky.airQuality|Air pollution index and pollen levels.|city
sky.sunTimes|Sunrise and sunset for a date and place.|date latitude longitude
maps.geocode|Turn a street address into coordinates.|address
maps.reverseGeocode|Turn coordinates into the nearest street address.|latitude longitude
maps.directions|Route between two places by car, bike or on foot.|origin destination mode
maps.elevation|Height above sea level of a point.|latitude longitude
transit.departures|Next trains and buses that leave from a stop.|stopId
transit.findStop|Find a public transport stop by name.|name
flights.searchOffers|Search flight offers between two airports with prices.|from to date
flights.flightStatus|Whether a flight is delayed, boarding or landed.|flightNumber
hotels.searchRooms|Free hotel rooms in a city for given nights.|city checkIn checkOut
money.convertCurrency|Convert an amount from one currency into another at today's exchange rate.|amount from to
money.inflationRate|Annual inflation of a country.|country year
stocks.quote|Latest share price of a listed company by ticker symbol.|symbol
stocks.dividends|Dividend payments of a stock.|symbol
stocks.incomeStatement|Revenue, costs and profit of a company per quarter.|symbol
text.translate|Translate text from one language to another.|text targetLanguage
text.detectLanguage|Detect which language a text is written in.|text
text.summarize|Summarize a long document in a few sentences.|text
text.sentiment|Tell whether a review is positive or negative.|text
image.resize|Resize or crop a picture.|url width height
image.removeBackground|Cut out the background of a photo.|url
image.recognizeText|OCR: read the text in a scanned image.|url
web.fetchPage|Download a web page and return it as Markdown.|url
web.search|Search the web and return the ten best links.|q
web.whois|Registration data of a domain: owner, registrar, expiry date.|domain
web.dnsLookup|Resolve a hostname to its IP addresses.|hostname
web.screenshot|Render a page in a browser and take a picture of it.|url
news.headlines|Top headlines of a country or category.|country category
books.searchByAuthor|Books written by an author.|author
books.isbnLookup|Title, author and publisher for an ISBN.|isbn
food.recipeSearch|Recipes for the ingredients that you have.|ingredients
food.nutritionFacts|Calories, fat and protein of a food.|food
sports.leagueTable|Standings of a football league.|league season
sports.liveScores|Scores of matches that are being played.|sport
movies.findByTitle|Find films and series by title.|title
movies.showtimes|When and where a film runs in cinemas near you.|film city
space.issPosition|Where the International Space Station is now.|
space.pictureOfTheDay|Astronomy picture of the day.|date
gov.parliamentVotes|How members of parliament voted on a bill.|billId
gov.companyRegister|Look up a company's directors and filings in the trade register.|name
health.drugInteractions|Whether two medicines may be taken together.|drugs
health.icdCode|Find the ICD-10 code of a diagnosis.|diagnosis
util.generateUUID|A random unique identifier.|
util.qrCode|Make a QR code image of a text or link.|text
util.hashText|SHA-256 or MD5 checksum of a text.|text algorithm
util.timezone|Local time in a city or time zone.|city
util.unitConvert|Convert lengths, weights and temperatures between units.|value from to
util.cronExplain|Explain a cron expression in plain words.|expression
"""


def _records():
    for namespace, nouns in _RECORDS.items():
        for noun in nouns.split():
            for verb, text in _VERBS.items():
                name = f"{verb}{noun[0].upper()}{noun[1:]}"
                if namespace in {"aws", "hr", "jira", "mail"}:
                    name = f"{verb}_{noun}"
                required = [] if verb in {"list", "create"} else [f"{noun}Id"]
                yield _tool(f"{namespace}.{name}", text.format(noun), _input(required))


def _singles():
    for line in _SINGLE.split("\n"):
        if line:
            tool_id, description, names = line.split("|")
            yield _tool(tool_id, description, _input(names.split()))


def _input(names):
    return {"properties": {name: {"type": "string"} for name in names}, "required": names}


@pytest.fixture(scope="module")
def hundreds():
    return ToolIndex(Catalog([*_records(), *_singles()]))


def test_the_catalog_of_the_questions_is_a_big_one(hundreds):
    assert len(hundreds.catalog) > 250


@pytest.mark.parametrize(
    ("question", "id"),
    [
        ("What is the price of bitcoin in euros right now?", "coins.getSimplePrice"),
        ("how did the price of ethereum change over the last 30 days", "coins.getMarketChart"),
        ("how expensive is gas on ethereum at the moment", "chain.getGasOracle"),
        ("which NFTs does this wallet own?", "chain.getNFTsByOwner"),
        ("who are the biggest holders of a token", "chain.getTokenHolders"),
        ("Will it rain in Berlin tomorrow? I need a weather forecast", "sky.forecast"),
        ("how strong is the wind right now", "sky.currentConditions"),
        ("when does the sun set, sunset time", "sky.sunTimes"),
        ("get coordinates for a street address", "maps.geocode"),
        ("route from my home to the airport by bike", "maps.directions"),
        ("next bus leaving from the stop at the corner", "transit.departures"),
        ("is my flight delayed", "flights.flightStatus"),
        ("cheap flights from Paris to Rome with prices", "flights.searchOffers"),
        ("convert 100 dollars to yen", "money.convertCurrency"),
        ("convert kilograms to pounds, units of weight", "util.unitConvert"),
        ("what is Apple's share price", "stocks.quote"),
        ("company revenue and profit per quarter", "stocks.incomeStatement"),
        ("translate this sentence into French", "text.translate"),
        ("is this customer review positive or negative", "text.sentiment"),
        ("read the text in a scanned receipt image", "image.recognizeText"),
        ("who owns this domain name and when does it expire", "web.whois"),
        ("take a screenshot of a website", "web.screenshot"),
        ("how many calories are in an apple", "food.nutritionFacts"),
        ("what can I cook with these ingredients, recipes", "food.recipeSearch"),
        ("football league standings", "sports.leagueTable"),
        ("where is the ISS", "space.issPosition"),
        ("can I take these two medicines together", "health.drugInteractions"),
        ("what time is it in Tokyo, local time", "util.timezone"),
        ("explain this cron expression", "util.cronExplain"),
        ("open a new issue on github", "github.createIssue"),
        ("list open pull requests", "github.listPullRequest"),
        ("delete a kubernetes pod", "kubernetes.deletePod"),
        ("create an invoice for a customer", "stripe.createInvoice"),
        ("send back the money: create a refund", "stripe.createRefund"),
        ("update the employee's fields in hr", "hr.update_employee"),
        ("list all s3 buckets in aws", "aws.list_bucket"),
        ("start a new draft of an email", "mail.create_draft"),
        ("show every jira ticket", "jira.list_ticket"),
        ("get one slack message by id", "slack.getMessage"),
    ],
)
def test_the_right_tool_for_a_question_is_among_the_first_three(hundreds, question, id):
    assert id in _ids(hundreds, question, limit=3)

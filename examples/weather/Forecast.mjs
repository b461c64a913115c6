// Forecasts for the cities of the shared list. The address is made up: the demo sends what is meant
// for it to a small server of its own (api.py).
export const main = {
    namespace: 'weather',
    name: 'Forecast',
    description: 'Weather forecasts for a few cities, day by day.',
    version: '4.0.0',
    schemaVersion: '1.0.0',
    schemaHash: 'f5ac2bd8',
    root: 'https://api.weather.example/v1',
    docs: [ 'https://docs.weather.example/forecast' ],
    tags: [ 'weather', 'forecast' ],
    requiredServerParams: [ 'WEATHER_API_KEY' ],
    headers: {
        'Accept': 'application/json',
        'Authorization': 'Bearer {{SERVER_PARAM:WEATHER_API_KEY}}'
    },
    sharedLists: [
        { ref: 'weatherCities', version: '1.0.0', filter: { key: 'station', exists: true } }
    ],
    meta: {
        isReadOnly: true,
        isConcurrencySafe: true,
        isDestructive: false,
        searchHint: 'weather forecast temperature rain city',
        aliases: [],
        alwaysLoad: false
    },
    tools: {
        getForecast: {
            method: 'GET',
            path: '/forecast/{{city}}',
            description: 'Forecast for a city: temperature and rain for each of the next days',
            parameters: [
                {
                    position: { key: 'city', value: '{{USER_PARAM}}', location: 'insert' },
                    z: { primitive: 'enum({{weatherCities:slug}})', options: [] }
                },
                {
                    position: { key: 'days', value: '{{USER_PARAM}}', location: 'query' },
                    z: { primitive: 'number()', options: [ 'min(1)', 'max(7)', 'default(3)' ] },
                    description: 'How many days, from today on'
                },
                {
                    position: { key: 'units', value: '{{USER_PARAM}}', location: 'query' },
                    z: { primitive: 'enum(metric,imperial)', options: [ 'optional()' ] }
                },
                {
                    position: { key: 'format', value: 'daily', location: 'query' },
                    z: { primitive: 'string()', options: [] }
                }
            ],
            output: {
                mimeType: 'application/json',
                schema: {
                    type: 'object',
                    properties: {
                        city: { type: 'string', description: 'Name of the city' },
                        units: { type: 'string', enum: [ 'metric', 'imperial' ] },
                        days: {
                            type: 'array',
                            description: 'One entry for each day',
                            items: {
                                type: 'object',
                                properties: {
                                    date: { type: 'string', description: 'Day, as YYYY-MM-DD' },
                                    high: { type: 'number', description: 'Highest temperature' },
                                    low: { type: 'number', description: 'Lowest temperature' },
                                    rain: {
                                        type: 'number',
                                        description: 'Probability of rain in percent',
                                        nullable: true
                                    }
                                }
                            }
                        }
                    }
                }
            },
            tests: [
                { _description: 'Berlin, as many days as by default', city: 'berlin' },
                { _description: 'Lisbon for a week', city: 'lisbon', days: 7, units: 'metric' },
                { _description: 'Oslo in Fahrenheit', city: 'oslo', days: 1, units: 'imperial' }
            ]
        }
    }
}

// Where to go: tools with hooks. What the hooks do is JavaScript, and runs in callpact's sandbox.
export const main = {
    namespace: 'weather',
    name: 'Trips',
    description: 'Help with choosing a city and a day for a trip.',
    version: '4.0.0',
    schemaVersion: '1.0.0',
    schemaHash: '6780255c',
    root: 'https://api.weather.example/v1',
    docs: [ 'https://docs.weather.example/forecast' ],
    tags: [ 'weather', 'travel' ],
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
        searchHint: 'trip travel warmest day compare cities',
        aliases: [],
        alwaysLoad: false
    },
    tools: {
        getWarmestDay: {
            method: 'GET',
            path: '/forecast/{{city}}',
            description: 'The warmest of the next days in a city',
            parameters: [
                {
                    position: { key: 'city', value: '{{USER_PARAM}}', location: 'insert' },
                    z: { primitive: 'string()', options: [ 'min(2)', 'max(40)' ] },
                    description: 'Name of the city, as people write it'
                },
                {
                    position: { key: 'days', value: '{{USER_PARAM}}', location: 'query' },
                    z: { primitive: 'number()', options: [ 'min(1)', 'max(7)', 'default(3)' ] }
                }
            ],
            output: {
                mimeType: 'application/json',
                schema: {
                    type: 'object',
                    properties: {
                        city: { type: 'string', description: 'Name of the city' },
                        date: { type: 'string', description: 'Day, as YYYY-MM-DD' },
                        high: { type: 'number', description: 'Highest temperature' }
                    }
                }
            },
            tests: [
                { _description: 'Berlin', city: 'Berlin' },
                { _description: 'Lisbon for a week', city: 'Lisbon', days: 7 },
                { _description: 'Oslo tomorrow', city: 'Oslo', days: 1 }
            ]
        },
        compareCities: {
            method: 'GET',
            path: '/forecast',
            description: 'Which of two cities is warmer tomorrow, and by how much',
            parameters: [
                {
                    position: { key: 'first', value: '{{USER_PARAM}}', location: 'query' },
                    z: { primitive: 'enum({{weatherCities:slug}})', options: [] }
                },
                {
                    position: { key: 'second', value: '{{USER_PARAM}}', location: 'query' },
                    z: { primitive: 'enum({{weatherCities:slug}})', options: [] }
                }
            ],
            output: {
                mimeType: 'application/json',
                schema: {
                    type: 'object',
                    properties: {
                        warmer: { type: 'string', description: 'Name of the city' },
                        by: { type: 'number', description: 'Degrees Celsius' }
                    }
                }
            },
            tests: [
                { _description: 'North and south', first: 'oslo', second: 'lisbon' },
                { _description: 'The other way round', first: 'lisbon', second: 'oslo' },
                { _description: 'Nearly the same', first: 'berlin', second: 'oslo' }
            ]
        }
    }
}

export const handlers = ( { sharedLists } ) => ( {
    getWarmestDay: {
        // A changed payload builds the request anew.
        preRequest: async ( { struct, payload } ) => {
            const name = payload.city.trim().toLowerCase()
            const city = sharedLists.weatherCities.find( ( c ) => c.name.toLowerCase() === name )
            if( !city ) { throw new Error( `no station in '${ payload.city }'` ) }
            return { struct, payload: { ...payload, city: city.slug } }
        },
        postRequest: async ( { response } ) => {
            const [ best ] = response.days.toSorted( ( a, b ) => b.high - a.high )
            return { response: { city: response.city, date: best.date, high: best.high } }
        }
    },
    compareCities: {
        // Two requests instead of the declared one. The key in `headers` is a placeholder here, put in later.
        executeRequest: async ( { struct, payload } ) => {
            const highOf = async ( city ) => {
                const url = `${ main.root }/forecast/${ city }?days=1`
                const answer = await fetch( url, { headers: struct.headers } )
                if( !answer.ok ) { throw new Error( `${ city }: the API answered ${ answer.status }` ) }
                return ( await answer.json() ).days[ 0 ].high
            }
            const [ one, other ] = await Promise.all( [ highOf( payload.first ), highOf( payload.second ) ] )
            const warmer = one >= other ? payload.first : payload.second
            return { response: { warmer, by: Math.abs( one - other ) } }
        },
        // It also reads what executeRequest gave.
        postRequest: async ( { response } ) => {
            const city = sharedLists.weatherCities.find( ( c ) => c.slug === response.warmer )
            return { response: { warmer: city.name, by: response.by } }
        }
    }
} )
